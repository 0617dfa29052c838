"""Laws of predictions on random runs; `CHARLLM_LAW_SPECS=2000` for long, `CHARLLM_LAW_SEED` for others."""

import os
from random import Random

import pytest

from tests.laws.laws import Case, check_case, draw_case

SPECS = int(os.environ.get("CHARLLM_LAW_SPECS", "150"))
SEED = int(os.environ.get("CHARLLM_LAW_SEED", "1"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_runs_obey_every_law(part: int) -> None:
    broken: list[str] = []
    for number in range(part * SPECS // PARTS, (part + 1) * SPECS // PARTS):
        found = check_case(draw_case(SEED, number), Random(f"{SEED}/change/{number}"))
        broken += [f"run {number}: {one}" for one in found]
    assert not broken, "\n".join(broken)


def test_a_broken_law_is_printed_as_commands_that_repeat_it() -> None:
    case = draw_case(SEED, 0)
    other = case.changed(("conditions.seed", 7))
    assert case.command.startswith("charllm simulate --ignore-memory --set ")
    assert "conditions.seed=7" in other.command
    assert Case(other.request).run.conditions.seed == 7
