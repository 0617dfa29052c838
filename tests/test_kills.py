"""What is left of commands that were killed, in small: `python -m benchmarks.kills` has the large version."""

import random
from pathlib import Path

from benchmarks import kills
from benchmarks.kills import OLDER, WRITERS, Whole, judge, run_trial

SOME = ("simulate --out", "simulate --chakra", "sweep --out", "export -o", "convert -o", "measure")


def test_of_killed_commands_nothing_is_lost_and_nothing_taken_as_whole(tmp_path: Path) -> None:
    tally, wrong = run_trial(2 * len(SOME), random.randrange(2**32), tmp_path, SOME)
    assert wrong == []
    assert tally == dict.fromkeys(SOME, 2)


def test_what_is_half_written_or_gone_would_be_noticed(tmp_path: Path) -> None:
    whole = Whole({"run.yaml": b"all of it", "study.json": b"{}"}, 1.0, 1)
    out = tmp_path / "out"
    out.mkdir()
    file, folder = WRITERS["export -o"], WRITERS["simulate --out"]
    for left, found in ((OLDER, ""), (b"all of it", ""), (b"all", "taken as whole"), (b"", "taken as whole")):
        (out / "run.yaml").write_bytes(left)
        assert judge(file, whole._replace(files={"run.yaml": b"all of it"}), out)[:14] == found[:14], left
    (out / "run.yaml").unlink()
    assert judge(file, whole._replace(files={"run.yaml": b"all of it"}), out).startswith("lost")
    assert judge(folder, whole, out) == ""
    (out / "run.yaml").write_bytes(b"all of it")
    assert judge(folder, whole, out) == "lost: ['study.json']"


def test_a_command_is_killed_before_one_of_its_operations_on_files(tmp_path: Path) -> None:
    out, words = tmp_path / "out.yaml", ("export", "--to", "nemo", *kills.RUN)
    process = kills.start(kills.counted(tmp_path / "count", 1, *words, "-o", str(out)))
    assert process.wait(kills.END_S) == -9
    assert not out.exists()
