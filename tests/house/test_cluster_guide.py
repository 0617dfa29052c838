"""What the guide to measuring on a cluster says is so."""

import re
from pathlib import Path

from charllm.measure.failure import CODES
from charllm.measure.launchers.plan import PLACEHOLDERS

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "measure_on_slurm.md").read_text()


def test_its_table_has_every_kind_of_failure_with_its_exit_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d+|the command's own) \|$", GUIDE, flags=re.MULTILINE))
    own = dict.fromkeys(("out_of_memory", "crash"), "the command's own")
    assert rows == {**own, **{kind: str(code) for kind, code in CODES.items()}}


def test_it_names_every_placeholder() -> None:
    assert all(f"`{{{name}}}`" in GUIDE for name in PLACEHOLDERS)
