"""Kill every command that writes, at random moments, and look at what is left.

    python -m benchmarks.kills [COUNT] [SEED] [ONLY ...]

SIGKILL goes to the process, or to its whole group, after a random time or before a random one of its operations on
files. Whatever then lies in the place of an output must be whole: what stood there before, or byte by byte what an
undisturbed command writes; of a sweep, each case that is stored. The same command (with --resume where it has that)
must then end well and leave the same files. A killed recording must be summarised with every step and reading that is
on disk, and say that it was interrupted.
"""

import contextlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from charllm.measure.recording import is_growing
from charllm.result.files import SAMPLES_FILE
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE, load_run
from tests.measure.convert.texts import nvidia_smi
from tests.measure.replays import find_sampler, make_replay, quiet_environment

COUNT, SEED = 240, 0
END_S, LONGEST_END_S = 300.0, 60.0
"""A command that takes longer hangs; a process that outlives its parent by more is left behind."""
EXAMPLES = Path(__file__).parent.parent / "examples"
RUN = ("--model", "llama3-8b", "--cluster", "h200x8", "--gbs", "8", "--tp", "2")
FIXED = ("--pp", "1", "--cp", "1", "--mbs", "1", "--zero", "1", "--recompute", "none", "--overlap", "dp")
CAPS = ("--power-cap", "700", "--clock-cap", "1980")
TINY = (
    "--model", "llama3-8b", "--set", "model.layers=2", "--set", "model.hidden=32", "--set", "model.ffn=64",
    "--set", "model.heads=4", "--set", "model.kv_heads=2", "--set", "model.head_dim=8", "--set", "model.vocab=64",
    "--seq", "16",
)  # fmt: skip
STEPS, STEP_S = 20, 0.03
JOB = f"""
import time, charllm.mark as mark
mark.step(tokens=0)
for number in range({STEPS}):
    time.sleep({STEP_S})
    mark.step(number, tokens=100)
"""
PAIR, CASES = 2, 6
"""Cases of the measured study; of the benchmark of collectives."""
STUDY = """
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2, 3, 8] }
axes.mbs = { field = "training.micro_batch_size", values = [1, 2] }
"""
OLDER = b"what stood here before\n"
CHANGING = re.compile(rb"considered in [0-9.]+ s")
"""What differs from one run to the next: how long a search took."""
GROWS = ("runs.jsonl",)
"""Files that may end in the middle: what reads them leaves out a torn last line."""
KILL_BEFORE = """
import os, signal, sys

place, last, done = sys.argv[1], int(sys.argv[2]), 0

def count(event, arguments):
    global done
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        done += 1
    elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"):
        done += 1
    else:
        return
    if done == last:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
sys.argv = ["charllm", *sys.argv[3:]]
from charllm.cli import main

code = main()
with open(place, "w") as file:
    file.write(str(done))
sys.exit(code)
"""


class Writer(NamedTuple):
    """A command that writes: its words for a folder of inputs and the folder of its outputs."""

    words: Callable[[Path, Path], list[str]]
    files: tuple[str, ...] = ()
    """Single files that it replaces; else it makes the folder."""
    again: tuple[str, ...] = ()
    """Flags to continue with."""
    check: Callable[[Path, Path], str] | None = None
    """Says what is wrong with what a killed measurement left in its folder; nothing where all is well."""
    stands_alone: bool = True
    """Whether its folder must hold everything or nothing; else each file must be whole."""


def simulate_all(_given: Path, out: Path) -> list[str]:
    views = ("--report", f"{out}/report.html", "--perfetto", f"{out}/perfetto.json", "--timeline", f"{out}/rank.json")
    return ["simulate", *RUN, *views]


def measured(given: Path, out: Path, *flags: str) -> list[str]:
    words = ["--idle", "0.1", "--cooldown", "0", "--telemetry", f"replay:{given}/loaded", "--host", "none"]
    return ["measure", *words, *flags, "--out", str(out), "--", sys.executable, "-c", JOB]


def emulated(given: Path, out: Path) -> list[str]:
    layout = ("--cluster", "h200x8", "--tp", "2", "--pp", "2", "--gbs", "8", "--rank", "4", "--device", "cpu")
    telemetry = f"replay:{given}/loaded"
    return ["emulate", *TINY, *layout, "--seconds", "0.8", "--telemetry", telemetry, "--out", str(out)]


def benched(_given: Path, out: Path) -> list[str]:
    sizes = ("--sizes", "1KiB:4KiB", "--collectives", "all_reduce,send", "--case-seconds", "0.02")
    return ["bench", "nccl", "--ranks", "2", "--tp", "2", "--device", "cpu", *sizes, "--out", str(out)]


def studied(given: Path, out: Path, *flags: str) -> list[str]:
    job = shlex.join([sys.executable, "-c", JOB])
    words = ["--telemetry", f"replay:{given}/loaded", "--host", "none", "--idle", "0", "--cooldown", "0"]
    return ["sweep", f"{given}/pair.toml", "--measure", *words, "--out", str(out), "--command", job, *flags]


def check_record(_given: Path, out: Path, origin: str = "measured", steps: int | None = STEPS) -> str:
    """Say what is wrong with the record of a job that was killed; the job itself may outlive it and mark on."""
    least, before = count_marks(out), -1
    while before != (before := count_marks(out)):
        time.sleep(5 * STEP_S)
    code, table = show(out)
    on_disk = _rows(out.glob("marks-*.csv")), _rows(out.glob(SAMPLES_FILE))
    if code == 2:
        return f"lost: {on_disk} marks and readings are there, and nothing is shown" if any(on_disk) else ""
    if code != 0:
        return f"show ended with {code}"
    facts = table["provenance"]["measurement"]
    whole = facts.get("exit_code") == 0 or facts.get("steps_emulated") is not None
    result = load_run(out)
    told = any("interrupted" in warning for warning in result.warnings)
    seen, most = count_steps(result), count_marks(out)
    if result.origin != origin:
        return f"origin is {result.origin}"
    if not whole and not told:
        return f"taken as whole: {result.warnings}"
    if steps is not None and not (steps if whole else least) <= seen <= most:
        return f"{seen} of {least} to {most} marked steps are shown, whole: {whole}"
    again = show(out)[1] or {}
    differs = [name for name in table if again.get(name) != table[name]]
    return (
        f"shown a second time, it differs: {[(table[name], again.get(name)) for name in differs]}"[:3000]
        if differs
        else ""
    )


def count_marks(out: Path) -> int:
    """Count the steps that a job has marked, from its first mark on."""
    lines = [line for path in out.glob("marks-*.csv") for line in path.read_text().splitlines(keepends=True)]
    return max(0, sum(",step," in line and line.endswith("\n") for line in lines) - 1)


def count_steps(result: RunResult) -> int:
    table = result.table("steps")
    return len(next(iter(table.values()))) if table else 0


def check_emulation(given: Path, out: Path) -> str:
    """Say what is wrong with an emulation that was killed: it marks no steps of a job."""
    return check_record(given, out, "emulated", None)


def check_measured_study(given: Path, out: Path) -> str:
    """Say what is wrong with a measured study that was killed: stored cases must be whole and stay as they are."""
    before = {name: data for name, data in read(out).items() if Path(name).name == RESULT_FILE}
    if any(count_steps(load_run(out / name)) != STEPS for name in before):
        return "a case without all of its steps is stored"
    done = run(command(*studied(given, out, "--resume", "--json")))
    if done.returncode != 0:
        return f"done again, it ends with {done.returncode}: {done.stderr[-300:]}"
    after = read(out)
    if any(after[name] != data for name, data in before.items()):
        return "done again, it differs in what was stored"
    return "" if sum(Path(name).name == RESULT_FILE for name in after) == PAIR else "lost: a case"


def check_bench(given: Path, out: Path) -> str:
    """Say what is wrong with a table of collectives: rows that were written must stay, and the rest be added."""
    rows = (out / "nccl.csv").read_bytes().splitlines()[:-1] if (out / "nccl.csv").exists() else []
    done = run(command(*benched(given, out)))
    if done.returncode != 0:
        return f"done again, it ends with {done.returncode}: {done.stderr[-300:]}"
    after = (out / "nccl.csv").read_bytes().splitlines()
    # A case that gave no result, because the machine was busy, is measured again and has a further row.
    cases = {tuple(row.split(b",")[:4]) for row in after[1:]}
    kept = after[: len(rows)] == rows and len(cases) == CASES
    return "" if kept else f"lost: {len(rows)} rows before, {len(after)} after"


WRITERS: dict[str, Writer] = {
    "simulate --out": Writer(lambda _given, out: ["simulate", *RUN, "--out", str(out)]),
    "simulate --report --perfetto --timeline": Writer(simulate_all, ("report.html", "perfetto.json", "rank.json")),
    "simulate --chakra": Writer(lambda _given, out: ["simulate", *RUN, "--chakra", str(out)]),
    "sweep --out": Writer(
        lambda given, out: ["sweep", f"{given}/study.toml", "--workers", "2", "--out", str(out)],
        again=("--resume",),
        stands_alone=False,
    ),
    "sweep --measure": Writer(studied, check=check_measured_study),
    "reproduce": Writer(
        lambda _given, out: [
            "reproduce", "charllm-ppt", "--only", "thermal-placement", "--workers", "1", "--out", str(out),
        ],
        stands_alone=False,
    ),
    "plan --report": Writer(
        lambda _given, out: ["plan", *RUN, *FIXED, *CAPS, "--report", f"{out}/plan.html"], ("plan.html",)
    ),
    "place -o": Writer(
        lambda _given, out: [
            "place", *RUN, "--pp", "4", "--decide", "ranks,layers", "--work", "0.02", "-o", f"{out}/placement.toml",
        ],
        ("placement.toml",),
    ),
    "export -o": Writer(
        lambda _given, out: ["export", "--to", "nemo", *RUN, "-o", f"{out}/run.yaml"], ("run.yaml",)
    ),
    "report -o": Writer(
        lambda given, out: ["report", f"{given}/stored", "-o", f"{out}/report.html"], ("report.html",)
    ),
    "convert -o": Writer(lambda given, out: ["convert", "nvidia-smi", f"{given}/gpu.csv", "-o", str(out)]),
    "trace --out": Writer(lambda _given, out: ["trace", f"{EXAMPLES}/traces", "--out", str(out)]),
    "trace --perfetto": Writer(
        lambda _given, out: ["trace", f"{EXAMPLES}/traces", "--perfetto", f"{out}/view.json"], ("view.json",)
    ),
    "calibrate -o": Writer(
        lambda _given, out: ["calibrate", f"{EXAMPLES}/h200-moe", "-o", f"{out}/host.toml"], ("host.toml",)
    ),
    "measure": Writer(measured, check=check_record),
    "emulate": Writer(emulated, check=check_emulation),
    "bench nccl": Writer(benched, check=check_bench),
}  # fmt: skip


class Whole(NamedTuple):
    """What an undisturbed command does."""

    files: dict[str, bytes]
    took_s: float
    operations: int


def prepare(folder: Path) -> None:
    """Write what the commands read."""
    (folder / "study.toml").write_text(STUDY)
    (folder / "pair.toml").write_text(STUDY.replace("[1, 2, 3, 8]", "[1]").replace("h200x8", "h200x1"))
    (folder / "gpu.csv").write_text(nvidia_smi())
    make_replay(folder / "loaded")
    subprocess.run(command("simulate", *RUN, "--out", f"{folder}/stored"), check=True, capture_output=True)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "charllm", *words]


def counted(place: Path, last: int, *words: str) -> list[str]:
    """Return the command that is killed before its operation of that number on files."""
    return [sys.executable, "-c", KILL_BEFORE, str(place), str(last), *words]


def run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
        env=quiet_environment(),
        start_new_session=True,
    )


def show(out: Path) -> tuple[int, Any]:
    """Show a record once nothing is written to it any more."""
    end_s = time.monotonic() + END_S
    while out.is_dir() and (find_sampler(out) is not None or is_growing(out)) and time.monotonic() < end_s:
        time.sleep(0.02)
    done = run(command("show", str(out), "--json"))
    if "Traceback" in done.stderr:
        return -1, done.stderr
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None


def make_whole(writer: Writer, given: Path, folder: Path) -> Whole:
    """Run a command undisturbed; its operations on files are counted a second time."""
    out = folder / "out"
    put_older(writer, out)
    begun_s = time.monotonic()
    done = run(command(*writer.words(given, out)))
    took_s = time.monotonic() - begun_s
    assert done.returncode == 0, (writer.words(given, out), done.stderr)
    files = read(out)
    put_older(writer, folder / "counted")
    done = run(counted(folder / "count", 0, *writer.words(given, folder / "counted")))
    assert done.returncode == 0, done.stderr
    return Whole(files, took_s, int((folder / "count").read_text()))


def put_older(writer: Writer, out: Path) -> None:
    """Put older files where new ones will stand."""
    out.parent.mkdir(exist_ok=True)
    for name in writer.files:
        out.mkdir(exist_ok=True)
        (out / name).write_bytes(OLDER)


def read(out: Path) -> dict[str, bytes]:
    """Return every file of an output; hidden ones are drafts."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and not _is_hidden(path.relative_to(out))]
    return {str(path.relative_to(out)): CHANGING.sub(b"", path.read_bytes()) for path in files}


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _rows(paths: Iterator[Path]) -> int:
    return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in paths)


def kill_once(writer: Writer, whole: Whole, given: Path, folder: Path, draw: random.Random) -> str:
    """Kill a command once and continue it; return what is wrong, nothing where all is well."""
    out = folder / "out"
    put_older(writer, out)
    words = writer.words(given, out)
    if draw.random() < 0.5:
        process = start(counted(folder / "count", draw.randint(1, whole.operations), *words))
        after_s = END_S
    else:
        process, after_s = start(command(*words)), draw.uniform(0.0, 1.1 * whole.took_s)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    if process.poll() is None:
        (os.killpg if draw.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        process.wait(END_S)
    if writer.check is not None:
        wrong = writer.check(given, out)
    else:
        wrong = judge(writer, whole, out) or continue_it(writer, whole, given, out)
    return wrong or left_behind(out)


def left_behind(out: Path) -> str:
    """Say which processes still work on an output, once they have had the time to end."""
    end_s = time.monotonic() + LONGEST_END_S
    while found := [place.parent.name for place in Path("/proc").glob("[0-9]*/cmdline") if _names(place, out)]:
        if time.monotonic() > end_s:
            return f"left behind: processes {', '.join(found)}"
        time.sleep(0.1)
    return ""


def _names(place: Path, out: Path) -> bool:
    """Tell whether the words of a process name a folder."""
    try:
        return str(out).encode() in place.read_bytes()
    except OSError:
        return False


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    null = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=null, stderr=null, start_new_session=True, env=quiet_environment())


def judge(writer: Writer, whole: Whole, out: Path) -> str:
    """Say which file is neither what stood there before nor whole."""
    left = read(out)
    for name, data in left.items():
        if Path(name).name in GROWS or (name in writer.files and data == OLDER):
            continue
        if not writer.stands_alone and name not in whole.files:
            continue
        if data != whole.files.get(name):
            return f"taken as whole: {name} with {len(data)} bytes"
    missing = [name for name in whole.files if name not in left]
    if missing and (writer.files or (left and writer.stands_alone)):
        return f"lost: {missing}"
    return ""


def continue_it(writer: Writer, whole: Whole, given: Path, out: Path) -> str:
    """Do it again; say what is not as after an undisturbed command."""
    again = [] if writer.stands_alone and not writer.files and out.exists() else writer.words(given, out)
    if again:
        cut = again.index("--") if "--" in again else len(again)
        done = run(command(*again[:cut], *writer.again, *again[cut:]))
        if done.returncode != 0:
            return f"done again, it ends with {done.returncode}: {done.stderr[-300:]}"
    found = {name: data for name, data in read(out).items() if Path(name).name not in GROWS}
    differ = [name for name in whole.files if Path(name).name not in GROWS and found.get(name) != whole.files[name]]
    return f"done again, it differs: {differ}" if differ else ""


def run_trial(count: int, seed: int, folder: Path, only: Sequence[str] = ()) -> tuple[Counter[str], list[str]]:
    """Kill so often, each kind equally often; return how often each was killed, and what was wrong."""
    given, draw = folder / "given", random.Random(seed)
    given.mkdir()
    prepare(given)
    kinds = [name for name in WRITERS if not only or name in only]
    whole: dict[str, Whole] = {}
    tally, wrong = Counter[str](), list[str]()
    for turn in range(count):
        name = kinds[turn % len(kinds)]
        if name not in whole:
            (folder / f"whole-{turn}").mkdir()
            whole[name] = make_whole(WRITERS[name], given, folder / f"whole-{turn}")
        trial = folder / f"{turn}"
        trial.mkdir()
        if said := kill_once(WRITERS[name], whole[name], given, trial, draw):
            wrong.append(f"{turn} {name}: {said}")
            print(wrong[-1], flush=True)
        tally[name] += 1
    return tally, wrong


def main(words: Sequence[str]) -> None:
    given = [int(word) for word in words[:2]]
    count, seed = (*given, *(COUNT, SEED)[len(given) :])
    with tempfile.TemporaryDirectory() as folder:
        tally, wrong = run_trial(count, seed, Path(folder), words[2:])
    for name, kills in tally.items():
        print(f"{name:40} {kills:4d} kills")
    print(f"{tally.total()} kills: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
