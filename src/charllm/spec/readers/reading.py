"""What a foreign file says: the request it makes, and every setting of it that the request does not hold."""

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a foreign file, as the file writes it."""

    name: str
    text: str
    """Name and value as written, e.g. ``--optimizer-cpu-offload`` or ``model.use_flash_attention: false``."""
    line: int | None = None
    reason: str = ""
    """Why it is not used, where that is known."""

    def shown(self) -> str:
        """Return the setting with its line and reason, as warnings and errors show it."""
        line = "" if self.line is None else f" (line {self.line})"
        return f"{self.text}{line}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Reading:
    """A foreign file, read. Every setting is used in `request`, known to have no effect, or listed here."""

    request: dict[str, Any]
    not_understood: tuple[Setting, ...] = ()
    """Names that no table of this reader knows: a warning each."""
    unmodelled: tuple[Setting, ...] = ()
    """Known to change the result in a way that is not modelled: refused unless the user allows it."""
    missing: dict[str, str] = field(default_factory=dict)
    """Field of the request that the file leaves open: what to add, e.g. ``--set model.vocab=N``."""
    small: tuple[Setting, ...] = ()
    """Known to change the result a little in a way that is not modelled: a warning each."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume: a warning each."""
    nodes: int | None = None
    """Nodes that the file starts the job on."""
    gpus_per_node: int | None = None
    microbatches: int | None = None
    """Microbatches of each replica in a step, where the file states them and no global batch."""
    copies: int = 1
    """Copies of the weights that share the ranks of all replicas, where only their number is stated."""
    model_id: str = ""
    """Repository of the model that the file names and does not describe."""

    def warnings(self) -> list[str]:
        """Return what a user must know about this reading, one sentence a line."""
        found = [f"not understood and not used: {setting.shown()}" for setting in self.not_understood]
        found += [f"not modelled, small effect: {setting.shown()}" for setting in self.small]
        return [*found, *self.notes]


_SIZES = re.compile(
    r"(?:^|_)(?:parallel|parallelism|degree|micro_?batch|batch_size|accumulation|precision|dtype|fp8|fp4|mxfp8|nvfp4|bf16|"
    r"fp16|lora|qlora|dora|adapter|peft|num_layers|n_layers?|num_hidden_layers|hidden_size|intermediate_size|vocab_size|heads|experts|topk|ffn|seq_len|seq_length|"
    r"sequence_len|sequence_length|zero|zero3|shard|sharding|fsdp|fsdp2|optimizer|optim|offload|offloading|quantization|"
    r"quantize|recompute|recompute_layer_ids|8bit|4bit|frozen|freeze)(?:_|$)"
)
_APART = re.compile(
    r"(?:^|[._])(?:eval|valid|validation|val|test|log|logging|save|load|ckpt|checkpoint\w*|wandb|tensorboard|data|dataset|"
    r"dataloader|loader|generation|inference|vocab_file|bucket\w*|init\w*|profile\w*|master|rdzv|seed|lr|cache|scheduler|"
    r"warmup|decay|beta\d?|eps|momentum|timeout|path|dir|file|name|group|backend|worker\w*)(?:[._]|$)"
)


def names_size(name: str) -> bool:
    """Tell whether a setting's name speaks of a degree, a size, a batch, a precision, an adapter or optimizer state.

    Such a setting, where it is not understood, is refused; one of data, logs, checkpoints or evaluation is not.
    """
    path = name.lower().strip("-").replace("-", "_")
    return bool(_SIZES.search(path.rpartition(".")[2])) and not _APART.search(path)


PREFERENCES = "the further passes of training by preferences or rewards"
NOT_UNDERSTOOD = "this setting, which is not understood and by its name may change a step"
