"""Static-batch generation: prompts are read once (prefill), then a step adds a token to every sequence (decode)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from charllm.spec.fields import check_fields, choice, count, flag

if TYPE_CHECKING:
    from charllm.spec.run import RunSpec

ENGINES = ("vllm", "sglang", "tensorrt-llm", "nemo-generate")
MOST = 16_777_216
"""Profiles of engines that generate, and the largest counts of a request."""
TOKENS_IN_ROW = 16
"""Most tokens in a row that a step of a pipeline stands for, which bounds the events of a step: filling the pipeline
takes 6 % of it, where an engine fills it once for a whole answer."""
CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0}
"""Format of the key-value cache: bytes of an element. Ignores: scales of 8-bit caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What is generated; a batch of equal sequences from begin to end."""

    prompt_tokens: int = count("Tokens of each prompt.", 1, MOST)
    new_tokens: int = count("Tokens that are generated for each sequence.", 1, MOST)
    cache_precision: str = choice("Number format of the key-value cache.", tuple(CACHE_BYTES), "bf16")
    top_p: bool = flag("Whether tokens are drawn from the most likely ones (top-p or top-k).", False)
    tokens_in_row: int = count("Tokens that a decode step adds to every sequence, one after the other.", 1, MOST, 1)
    context_tokens: int = count(
        "Tokens of each sequence in the cache when a decode step begins; 0: the prompt is read (prefill).",
        0, 2 * MOST, 0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def mean_context_tokens(self) -> int:
        """Tokens in the cache in the middle of decoding: a step's time is nearly a line over them."""
        return self.prompt_tokens + max(1, self.new_tokens // 2)


def prefill_run(run: "RunSpec") -> "RunSpec":
    """Return the step that reads the prompts, in microbatches of as many tokens as the engine takes at once."""
    generation = _generation(run)
    batch = run.training.global_batch_size // run.parallelism.dp
    at_once = max(1, run.framework.prefill_tokens // generation.prompt_tokens)
    micro = max(size for size in range(1, batch + 1) if batch % size == 0 and size <= at_once)
    training = replace(run.training, seq_length=generation.prompt_tokens, micro_batch_size=micro)
    return replace(run, training=training, generation=replace(generation, context_tokens=0))


def decode_run(run: "RunSpec", context_tokens: int | None = None) -> "RunSpec":
    """Return the step that adds a token to every sequence.

    Stages of a pipeline work on a part of the batch each; the next token of a part follows when it has left the last
    stage, so that a step stands for some tokens in a row and fills the pipeline once.
    """
    generation, pp = _generation(run), run.parallelism.pp
    batch = run.training.global_batch_size // run.parallelism.dp
    parts = min(pp, batch)
    micro = -(-batch // parts)
    row = min(TOKENS_IN_ROW, max(1, generation.new_tokens - 1)) if parts == pp > 1 else 1
    whole = micro * parts * row * run.parallelism.dp
    training = replace(run.training, seq_length=1, global_batch_size=whole, micro_batch_size=micro)
    context = context_tokens or generation.mean_context_tokens
    return replace(run, training=training, generation=replace(generation, context_tokens=context, tokens_in_row=row))


def _generation(run: "RunSpec") -> Generation:
    if run.generation is None:
        raise ValueError("a run that generates nothing has no phases")
    return run.generation
