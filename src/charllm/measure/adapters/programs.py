"""The programs themselves: charllm's reference trainer, Megatron-LM, NeMo, torchtitan, any command."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired
from subprocess import run as run_process

from charllm.errors import SpecError, unknown_name
from charllm.measure.adapters.adapter import Adapter, Program, Request
from charllm.measure.adapters.command import COMMAND
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec
from charllm.units import MEGA

ONE_CONNECTION = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""Megatron-LM launches communication before compute of its own accord only so: it asks for it with tp or cp, and for
the contrary with FSDP."""
LEAST_FSDP = 2
"""ZeRO stage from which on Megatron-LM's own FSDP shards."""
NO_SWITCH_REDUCTION = {"NCCL_NVLS_ENABLE": "0"}
TRIED_S = 30.0
"""Longest wait for a Python to say which release it has."""
FAR = str(int(MEGA))
CONFIG_GROUP, CONFIG_NAME = "charllm", "run"
"""Folder and name under which Hydra finds the settings that are laid over NeMo's own file."""


def _require_run(request: Request, adapter: str) -> RunSpec:
    if request.run is None:
        raise SpecError("--adapter", adapter, "a run beside it: --model, --cluster, --tp ...")
    return request.run


def _require_script(request: Request, adapter: str, example: str) -> str:
    if not request.script:
        raise SpecError("--script", None, f"the training script of {adapter}, e.g. {example}")
    return request.script


def _environment(run: RunSpec, more: Mapping[str, str]) -> dict[str, str]:
    return {**more, **({} if run.framework.in_switch_reduction else NO_SWITCH_REDUCTION)}


def _reference(request: Request) -> Program:
    from charllm.spec.writers.toml import write_toml

    run = _require_run(request, "reference")
    spec = request.config.with_name(f"{request.config.name}.toml")
    words = (request.python, "-m", "charllm", "train", str(spec), "--steps", str(request.steps), *request.words)
    return Program(
        command=words, files={spec: write_toml(run.as_table())}, log_kind="json", marks=True, ranks=run.cluster.gpus
    )


def _megatron(request: Request) -> Program:
    from charllm.catalog.export import export_run
    from charllm.spec.writers.megatron import write_megatron

    run = _require_run(request, "megatron")
    program = "pretrain_mamba.py" if run.model.pattern else "pretrain_gpt.py"
    script = _require_script(request, "Megatron-LM", f"Megatron-LM/{program}")
    data = [] if "--data-path" in request.words else ["--mock-data", "--tokenizer-type", "NullTokenizer"]
    loop = ["--train-iters", str(request.steps), "--lr", "1.0e-4", "--min-lr", "1.0e-5", "--eval-iters", "0"]
    loop += ["--eval-interval", FAR, "--log-interval", "1", "--log-throughput", "--distributed-backend", "nccl"]
    export_run(run, "megatron")
    return Program(
        command=(request.python, script, *write_megatron(run), *loop, *data, *request.words),
        environment=_environment(run, ONE_CONNECTION if run.parallelism.zero < LEAST_FSDP else {}),
        log_kind="megatron",
        ranks=run.cluster.gpus,
    )


def _nemo(request: Request) -> Program:
    """Lay the run's settings over NeMo's own file, which holds all the others."""
    from charllm.catalog.export import export_run

    run = _require_run(request, "nemo")
    tunes = run.training.lora_rank > 0
    folder = "NeMo/examples/nlp/language_modeling"
    example = "tuning/megatron_gpt_finetuning.py" if tunes else "megatron_gpt_pretraining.py"
    script = _require_script(request, "NeMo", f"{folder}/{example}")
    config = request.config / CONFIG_GROUP / f"{CONFIG_NAME}.yaml"
    words = [f"--config-dir={request.config}", f"+{CONFIG_GROUP}={CONFIG_NAME}"]
    words += ["++trainer.val_check_interval=1.0", "++trainer.limit_val_batches=0"]
    words += ["++exp_manager.create_checkpoint_callback=False"]
    # Fine-tuning has no mock data: its files are given as further words.
    words += [] if tunes else ["++model.data.data_impl=mock", "model.data.data_prefix=[]"]
    return Program(
        command=(request.python, script, *words, *request.words),
        environment=_environment(run, ONE_CONNECTION),
        files={config: export_run(run, "nemo", request.steps).text},
        ranks=run.cluster.gpus,
    )


def _torchtitan(request: Request) -> Program:
    from charllm.catalog.export import export_run

    run = _require_run(request, "torchtitan")
    if request.script is None:
        _refuse_newer_torchtitan(request.python)
    config = request.config.with_name(f"{request.config.name}.toml")
    start = (request.script,) if request.script else ("-m", "torchtitan.train")
    return Program(
        command=(request.python, *start, f"--job.config_file={config}", *request.words),
        environment=_environment(run, {}),
        files={config: export_run(run, "torchtitan", request.steps).text},
        log_kind="torchtitan",
        ranks=run.cluster.gpus,
    )


def _refuse_newer_torchtitan(python: str) -> None:
    """Refuse a torchtitan that takes its settings from Python alone; one that is not here may be on the nodes."""
    asked = [python, "-c", "from importlib.metadata import version; print(version('torchtitan'))"]
    try:
        release = run_process(asked, capture_output=True, text=True, timeout=TRIED_S, check=False).stdout.strip()
    except (OSError, TimeoutExpired):
        return
    numbers = [int(part) for part in release.split(".")[:2] if part.isdecimal()]
    if numbers >= [0, 3]:
        command = "-- torchrun ... -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len {seq} ..."
        raise SpecError("--adapter", f"torchtitan {release}", "torchtitan up to 0.2.2, which reads a job config in "
                        f"TOML; its own command otherwise: --adapter command {command}")  # fmt: skip


ADAPTERS: dict[str, Adapter] = {
    "command": COMMAND,
    "reference": Adapter(_reference, "charllm's own trainer (charllm train)", "pytorch-eager"),
    "megatron": Adapter(_megatron, "Megatron-LM, --script Megatron-LM/pretrain_gpt.py", "megatron"),
    "nemo": Adapter(_nemo, "NeMo, --script .../megatron_gpt_pretraining.py", "nemo"),
    "torchtitan": Adapter(_torchtitan, "torchtitan, installed or --script .../train.py", "torchtitan", ("dp", "pp")),
}
"""Name: program."""


def find_adapter(name: str) -> Adapter:
    """Return an adapter by its name."""
    if name not in ADAPTERS:
        raise unknown_name("--adapter", name, ADAPTERS)
    return ADAPTERS[name]


def with_program(name: str, request: Table) -> Table:
    """Return a request for a run of a program: its software profile, and what it always overlaps, unless given."""
    found = find_adapter(name)
    under: Table = {} if found.framework is None else {"framework": found.framework}
    if found.overlap is not None:
        under["parallelism"] = {"overlap": list(found.overlap)}
    merged: Table = merge(under, request)
    return merged


def prepare_program(name: str, request: Request) -> Program:
    """Return the command that trains a run with a program."""
    program = find_adapter(name).prepare(request)
    return replace(program, spec=None if request.run is None else request.run.as_table())


def write_files(program: Program) -> None:
    """Write the files that a program reads."""
    for path, text in program.files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SpecError("--out", str(path), f"a folder that can be written ({error.strerror or error})") from None


def as_ranks_here(program: Program) -> tuple[str, ...]:
    """Return the command with torchrun before it, where it takes several processes on this machine."""
    if program.ranks == 1:
        return program.command
    python, *rest = program.command
    return (python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={program.ranks}", *rest)


def beside(folder: Path) -> Path:
    """Return where the files of a program go: beside the run's folder, which has to be empty when the run begins."""
    return folder.absolute().with_name(f"{folder.name}-program")
