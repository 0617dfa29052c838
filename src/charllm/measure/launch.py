"""Start the sampler and a command beside each other, and end both as they should."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from charllm.errors import CharllmError, SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.telemetry.source import TelemetryError

READY_S, STOP_S = 30.0, 10.0
COMMAND_NOT_FOUND, COMMAND_NOT_RUNNABLE = 127, 126
KEPT_VARIABLES = re.compile(
    r"^(CUDA|NCCL|TORCH|OMP|GLOO|HIP|ROCR|NVTE|SLURM_JOB|SLURM_NNODES|(LOCAL_)?RANK|WORLD_SIZE)"
)
SECRET_WORDS = re.compile(r"(key|token|secret|password|passwd|credential|auth)", re.IGNORECASE)


class CommandError(CharllmError):
    """The command could not be started."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextlib.contextmanager
def sampling(folder: Path, telemetry: str, rate_hz: float, gpus: Sequence[str] = ()) -> Iterator[None]:
    """Run the sampler beside what happens inside; it ends even when that fails."""
    command = [sys.executable, "-m", "charllm.measure.sampler", str(folder), "--telemetry", telemetry]
    command += ["--rate", str(rate_hz), "--gpus", ",".join(gpus)]
    errors = (folder / "sampler.log").open("w+", encoding="utf-8")
    sampler = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        if sampler.stdout is None or sampler.stdout.readline().strip() != "ready":
            sampler.wait(STOP_S)
            errors.seek(0)
            reason = errors.read().strip().splitlines() or ["it ended without a word"]
            raise TelemetryError(f"the sampler did not start: {reason[-1]}")
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            if sampler.stdin is not None:
                sampler.stdin.close()
        try:
            sampler.wait(STOP_S)
        except subprocess.TimeoutExpired:
            sampler.kill()
        if sampler.stdout is not None:
            sampler.stdout.close()
        errors.close()


def run_command(command: Sequence[str], marks_folder: Path, environment: Mapping[str, str]) -> int:
    """Run a command with our own input and output, pass signals on, and return its exit code."""
    try:
        child = subprocess.Popen(list(command), env={**environment, FOLDER_VARIABLE: str(marks_folder)})
    except FileNotFoundError:
        raise CommandError(f"command not found: {command[0]}", COMMAND_NOT_FOUND) from None
    except OSError as error:
        raise CommandError(f"cannot run {command[0]}: {error.strerror or error}", COMMAND_NOT_RUNNABLE) from None
    with _passing_signals(child):
        code = child.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _passing_signals(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Hand termination signals to the child and wait for it, so that nothing it prints or we record is lost."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {name: signal.signal(name, pass_on) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def wait_idle(seconds_s: float) -> tuple[float, float]:
    """Let the machine be idle for a while and return that window, on the monotonic clock."""
    start_s = time.monotonic()
    time.sleep(seconds_s)
    return start_s, time.monotonic()


def describe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that shape a run; what might be a secret is never among them."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if KEPT_VARIABLES.match(name) and not SECRET_WORDS.search(name)
    }


def describe_command(command: Sequence[str]) -> list[str]:
    """Return a command for the record, with what might be a secret blotted out."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        name, equals, _value = word.partition("=")
        if hide_next:
            shown.append("***")
            hide_next = False
        elif equals and SECRET_WORDS.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(word)
            hide_next = word.startswith("-") and bool(SECRET_WORDS.search(word))
    return shown


def visible_gpus(environment: Mapping[str, str], uuids: Sequence[str]) -> list[str]:
    """Return the GPUs a job may see, by UUID: those in CUDA_VISIBLE_DEVICES, by number or by UUID."""
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return list(uuids)
    chosen: list[str] = []
    for word in (part.strip() for part in asked.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
            continue
        matches = [uuid for uuid in uuids if word and uuid.startswith(word)]
        if len(matches) != 1:
            if word.startswith("MIG-"):
                raise SpecError("CUDA_VISIBLE_DEVICES", asked, "whole GPUs: a MIG slice tells no power of its own")
            # CUDA too stops at the first name it does not know.
            break
        chosen.append(matches[0])
    return chosen
