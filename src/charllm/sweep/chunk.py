"""An array task of Slurm: it simulates and stores the cases of one chunk of a study.

    python -m charllm.sweep.chunk OUT/.slurm/JOB TASK

It may be started again at any time: cases whose folder is there are left alone.
"""

import json
import sys
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError
from charllm.sweep.case import Task, run_case
from charllm.sweep.folder import case_folder, load_header, read_case
from charllm.sweep.outcome import FAILED
from charllm.sweep.study import unfold

CHUNKS_FILE, SPOKE = "chunks.json", "charllm: "
"""What a line of a task's log begins with that says why it cannot go on."""


def run_chunk(place: Path, task: int) -> None:
    """Run the cases of a chunk; those that fail are written beside it, since they have no folder."""
    out = place.parent.parent
    header = load_header(out)
    study = unfold(str(header["name"]), header["table"])
    numbers: list[int] = json.loads((place / CHUNKS_FILE).read_text(encoding="utf-8"))[task]
    for number in numbers:
        folder = case_folder(out, number)
        if read_case(folder) is not None:
            continue
        try:
            outcome = run_case(Task(study.cases[number], folder, bool(header["signals"])))
        except CharllmError:
            if read_case(folder) is None:
                raise
            # A task that Slurm took for lost has stored it meanwhile.
            continue
        if outcome.exit_code == FAILED:
            _append(place / f"failed-{task}.jsonl", {"number": number, "outcome": outcome._asdict()})


def _append(path: Path, entry: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    try:
        run_chunk(Path(sys.argv[1]), int(sys.argv[2]))
    except (CharllmError, OSError) as error:
        sys.exit(f"{SPOKE}{error}")
