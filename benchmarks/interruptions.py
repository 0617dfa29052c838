"""Interrupt a two-worker sweep at random moments, continue it, and compare its table with that of an undisturbed one.

    python -m benchmarks.interruptions [COUNT] [SEED]           COUNT small sweeps, each interrupted once
    python -m benchmarks.interruptions long [RUNS] [COUNT]      one sweep of RUNS cases, interrupted COUNT times

Signal and target are drawn anew each time; every table must be equal, byte by byte, and no process may be left.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.sweep_speed import make_study
from charllm.sweep.measured import to_toml

COUNT, SEED, WORKERS = 200, 0, 2
LONG_RUNS, LONG_COUNT, LATEST_S = 10_000, 20, 0.1
"""A long sweep is interrupted so often, up to so long after a case was stored."""
SHOWN_EVERY = 5
END_S, LONG_S = 300.0, 7200.0
"""A sweep that is still there so long after a signal hangs; a long one takes up to so long."""
STUDY = """
about = "small cases, some wrong, and one that does not fit"
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2, 3, 4, 8] }
axes.mbs = { field = "training.micro_batch_size", values = [1, 2] }
axes.recompute = { none = { }, full = { training = { recompute = "full" } } }
[[groups]]
axes.large."does not fit" = { model = "llama3-405b" }
"""


def to_group(parent: int, number: int) -> bool:
    os.killpg(parent, number)
    return True


def to_parent(parent: int, number: int) -> bool:
    os.kill(parent, number)
    return True


def to_worker(parent: int, number: int) -> bool:
    found = workers_of(parent)
    if found:
        os.kill(random.choice(found), number)
    return bool(found)


INTERRUPTIONS: dict[str, tuple[int, Callable[[int, int], bool]]] = {
    "SIGINT to all": (signal.SIGINT, to_group),
    "SIGINT to the parent": (signal.SIGINT, to_parent),
    "SIGTERM to the parent": (signal.SIGTERM, to_parent),
    "SIGKILL to the parent": (signal.SIGKILL, to_parent),
    "SIGKILL to a worker": (signal.SIGKILL, to_worker),
}


def workers_of(parent: int) -> list[int]:
    """Return the children of a process."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(place.parent.name))
    return found


def sweep(study: Path, out: Path, *flags: str) -> list[str]:
    words = ["-m", "charllm", "sweep", str(study), "--out", str(out), "--workers", str(WORKERS), "--json", *flags]
    return [sys.executable, *words]


def stored(out: Path) -> int:
    return len(list(out.glob("runs/*/case.json")))


def left_behind(out: Path) -> list[int]:
    """Return the processes that still hold the folder of a sweep."""
    held = str(out / ".lock")
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == held:
                found.append(int(link.parts[2]))
        except OSError:
            continue
    return found


def interrupt(study: Path, out: Path, name: str, after_s: float) -> tuple[int, bool]:
    """Start a sweep, interrupt it after a while; return its exit code, and whether there was anything to interrupt."""
    process = start(sweep(study, out))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    return strike(process, name)


def start(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def strike(process: "subprocess.Popen[bytes]", name: str) -> tuple[int, bool]:
    """Interrupt a sweep and see it end; return its exit code, and whether there was anything to interrupt."""
    number, aim = INTERRUPTIONS[name]
    was_hit = process.poll() is None and aim(process.pid, number)
    try:
        return process.wait(END_S), was_hit
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise SystemExit(f"{name}: the sweep hangs") from None


def resume(study: Path, out: Path, end_s: float = END_S) -> bytes:
    done = subprocess.run(sweep(study, out, "--resume"), capture_output=True, timeout=end_s, check=False)
    if done.returncode != 0:
        raise SystemExit(f"--resume ended with {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def shown(out: Path) -> bytes:
    words = [sys.executable, "-m", "charllm", "show", str(out), "--json"]
    return subprocess.run(words, capture_output=True, timeout=END_S, check=True).stdout


def files(out: Path) -> dict[str, bytes]:
    """Return every result and outcome of a study."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.glob("runs/*/*.json"))}


def run_trial(
    count: int, seed: int, folder: Path, text: str = STUDY, kinds: Sequence[str] = tuple(INTERRUPTIONS)
) -> Counter[str]:
    """Interrupt as often as asked, each kind equally often; return how often each was done.

    A moment at which the sweep had ended already, or had no worker yet to kill, does not count.
    """
    study = folder / "study.toml"
    study.write_text(text)
    start_s = time.monotonic()
    undisturbed = subprocess.run(sweep(study, folder / "whole"), capture_output=True, timeout=END_S, check=True).stdout
    longest_s = time.monotonic() - start_s
    draw = random.Random(seed)
    tally: Counter[str] = Counter()
    # A shell that starts this in the background lets it ignore interrupts, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while (turn := tally.total()) < count:
        name = kinds[turn % len(kinds)]
        after_s = draw.uniform(0.0, longest_s)
        out = Path(tempfile.mkdtemp(dir=folder)) / "out"
        code, was_hit = interrupt(study, out, name, after_s)
        if not was_hit:
            continue
        before = stored(out)
        table = resume(study, out)
        equal = table == undisturbed and files(out) == files(folder / "whole")
        if turn % SHOWN_EVERY == 0:
            equal = equal and shown(out) == undisturbed
        print(f"{turn:4d}  {name:22} after {after_s:5.2f} s: exit {code:4d}, {before:2d} stored, equal: {equal}")
        if not equal or left_behind(out):
            raise SystemExit(f"{out}: tables differ, or processes are left: {left_behind(out)}")
        tally[name] += 1
    return tally


def run_long_trial(runs: int, count: int, seed: int, folder: Path) -> Counter[str]:
    """Interrupt one sweep at random moments, continue it each time, at last to its end; return what was done to it."""
    study, out = folder / "long.toml", folder / "out"
    study.write_text(to_toml(make_study(runs).table))
    undisturbed = subprocess.run(sweep(study, folder / "whole"), capture_output=True, timeout=LONG_S, check=True).stdout
    draw = random.Random(seed)
    tally: Counter[str] = Counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for turn, cases in enumerate(sorted(draw.sample(range(1, runs), count))):
        name = draw.choice([name for name in INTERRUPTIONS if name != "SIGKILL to a worker"])
        process = start(sweep(study, out, "--resume"))
        while process.poll() is None and begun(out) < cases:
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, LATEST_S))
        code, was_hit = strike(process, name)
        tally[name] += was_hit
        print(f"{turn:4d}  {name:22} exit {code:4d}, {stored(out):6d} of {runs} stored")
    equal = resume(study, out, LONG_S) == undisturbed and files(out) == files(folder / "whole")
    if not equal or left_behind(out):
        raise SystemExit(f"{out}: tables differ, or processes are left: {left_behind(out)}")
    return tally


def begun(out: Path) -> int:
    """Return how many cases are stored, those that are just being written among them."""
    return len(os.listdir(out / "runs")) if (out / "runs").is_dir() else 0


def main(words: Sequence[str]) -> None:
    is_long = words[:1] == ["long"]
    defaults = (LONG_RUNS, LONG_COUNT) if is_long else (COUNT, SEED)
    given = [int(word) for word in words[is_long:]]
    first, second = (*given, *defaults[len(given) :])
    with tempfile.TemporaryDirectory() as place:
        done = run_long_trial(first, second, SEED, Path(place)) if is_long else run_trial(first, second, Path(place))
    print(f"{done.total()} interruptions, equal tables: {dict(done)}")


if __name__ == "__main__":
    main(sys.argv[1:])
