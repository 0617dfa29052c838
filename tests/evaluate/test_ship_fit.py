"""What is fitted on published rows is what ships."""

import shutil
from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.fit import UNDESCRIBED
from charllm.evaluate.held_out import load_folds
from charllm.evaluate.ship_fit import FRAMEWORKS, LINES, PACKAGE, ship
from charllm.evaluate.software_columns import SLOW_LIBRARY_FRACTIONS
from charllm.timeline.constants import TIMELINE

FITTED = load_folds()["all"]


@pytest.mark.parametrize("profile", sorted(UNDESCRIBED))
def test_every_profile_has_the_fitted_traffic_of_its_group(profile: str) -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h100x8", "framework": profile})
    assert run.framework.undescribed_fraction == pytest.approx(FITTED[f"undescribed.{UNDESCRIBED[profile]}"], rel=5e-3)


def test_other_constants_are_the_fitted_ones() -> None:
    assert SLOW_LIBRARY_FRACTIONS["h100"] == pytest.approx(FITTED["library.h100"], rel=5e-3)
    assert TIMELINE.uneven_host_fraction == pytest.approx(FITTED["timeline.uneven_host_fraction"], rel=5e-3)


def test_shipping_writes_each_value_and_nothing_else(tmp_path: Path) -> None:
    files = [*FRAMEWORKS, *(file for file, _ in LINES.values())]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / file, tmp_path / file)
    ship(FITTED, tmp_path)
    assert all((tmp_path / file).read_text() == (PACKAGE / file).read_text() for file in files)
    ship({**FITTED, "undescribed.plain": 9.0}, tmp_path)
    text = (tmp_path / FRAMEWORKS[1]).read_text()
    assert text.count('undescribed_fraction = [9, "fit"]') == 2
    (tmp_path / "timeline/constants.py").write_text("")
    with pytest.raises(ValueError, match="expected one"):
        ship(FITTED, tmp_path)
