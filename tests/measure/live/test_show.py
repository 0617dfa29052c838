"""The live view on a terminal beside a command that prints, and as blocks of lines elsewhere."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from charllm.measure.live import show
from charllm.measure.live.show import watching
from tests.measure.live.runs import write_marks, write_node
from tests.measure.live.terminal import Terminal
from tests.measure.replays import REPLAY, make_replay, quiet_environment

LINES, COLUMNS = 30, 110
PRINTING = """
import pathlib, sys, time
for number in range(40):
    while number == 39 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
    print("job line", number, flush=True)
    time.sleep(0.02)
"""
"""Before its last line it waits until someone has seen what stands below."""


def run_on_terminal(
    *words: str, lines: int = LINES, columns: int = COLUMNS, after: str = "", awaited: str, seen: Path
) -> tuple[str, int]:
    """Run charllm on a terminal of its own; returns all it wrote and its exit code.

    Once it has written what is awaited, after something else, a file is made that says so.
    """
    main_end, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, "-m", "charllm", *words]
    with subprocess.Popen(
        command, stdin=other_end, stdout=other_end, stderr=other_end, env=quiet_environment(), start_new_session=True
    ) as process:
        os.close(other_end)
        text = b""
        while True:
            try:
                block = os.read(main_end, 1 << 16)
            except OSError:
                break
            text += block
            if not block:
                break
            if awaited.encode() in text[text.find(after.encode()) :] and after.encode() in text:
                seen.touch()
    os.close(main_end)
    return text.decode(), process.returncode


def test_the_table_stays_below_what_the_command_prints(tmp_path: Path) -> None:
    words = ["--telemetry", make_replay(tmp_path / "replay", gpus=2), "--idle", "0", "--cooldown", "0"]
    command = [sys.executable, "-c", PRINTING, str(tmp_path / "seen")]
    text, code = run_on_terminal(
        "measure", "--watch", *words, "--out", str(tmp_path / "run"), "--", *command,
        after="job line 38", awaited=": running", seen=tmp_path / "seen",
    )  # fmt: skip
    assert code == 0
    terminal = Terminal(LINES, COLUMNS)
    during = text.rindex("job line 39")
    terminal.feed(text[:during])
    above, below = _split(terminal.screen)
    printed = [line for line in [*terminal.scrolled, *above] if line]
    assert printed == [f"job line {number}" for number in range(39)]
    assert below[1].startswith(f"{tmp_path / 'run'}: running")
    gpus = [line.split() for line in below if line.split()[:1] in (["0"], ["1"])]
    assert [words[0] for words in gpus] == ["0", "1"]
    terminal.feed(text[during:])
    left = terminal.screen
    assert re.search(r"ended, 0:\d\d since the command began; 2 GPUs", " ".join(" ".join(left).split()))
    assert [line for line in [*terminal.scrolled, *left] if line][:40] == [f"job line {number}" for number in range(40)]
    assert any(line.startswith("charllm: ") and "recorded in" in line for line in left)


def _split(screen: list[str]) -> tuple[list[str], list[str]]:
    """Return what stands above the table's rule, and the rule with what is below."""
    rule = next(row for row, line in enumerate(screen) if line.startswith("-" * 50))
    return screen[:rule], screen[rule:]


def test_a_table_that_grows_and_a_terminal_that_is_small_leave_room_for_the_command(tmp_path: Path) -> None:
    words = ["--telemetry", make_replay(tmp_path / "replay", gpus=8), "--idle", "0", "--cooldown", "0"]
    command = [sys.executable, "-c", PRINTING, str(tmp_path / "seen")]
    text, code = run_on_terminal(
        "measure", "--watch", *words, "--out", str(tmp_path / "r"), "--", *command, lines=18, columns=60,
        after="job line 38", awaited="more GPUs have no room", seen=tmp_path / "seen",
    )  # fmt: skip
    assert code == 0, text
    terminal = Terminal(18, 60)
    terminal.feed(text[: text.rindex("job line 39")])
    assert any(line.startswith("job line") for line in terminal.screen[:4]), terminal.screen
    assert any("more GPUs have no room" in line for line in terminal.screen), terminal.screen


def test_charllm_watch_attaches_to_a_run_and_ends_with_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = [sys.executable, "-m", "charllm", "measure", "--telemetry", REPLAY, "--idle", "0", "--out", str(run), "--"]
    job += ["sh", "-c", f"until test -e {tmp_path}/seen; do sleep 0.05; done"]
    with subprocess.Popen(job, env=quiet_environment(), stderr=subprocess.PIPE) as measured:
        while not (run / "samples.csv").exists():
            assert measured.poll() is None
            time.sleep(0.01)
        text, code = run_on_terminal("watch", str(run), awaited=": running, 0:", seen=tmp_path / "seen")
        measured.communicate()
    assert code == 0
    assert re.search(r": running, 0:\d\d ", text)
    assert ": ended" in text.rpartition("\033")[2]


def test_without_a_terminal_blocks_of_lines_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "BLOCK_S", 0.2)
    write_marks(write_node(tmp_path, gpus=2), 5)
    shown = ""
    with watching(tmp_path):
        while shown.count(" running") < 2:
            time.sleep(0.05)
            shown += capsys.readouterr().err
    shown += capsys.readouterr().err
    assert "\033" not in shown
    assert shown.count(" running") >= 2
    assert shown.count("step 5;") == shown.count(" running")


def test_nothing_fails_where_nothing_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watching(tmp_path / "none"):
        pass
    assert "waiting for the first reading" in capsys.readouterr().err
