"""Which source is opened when, and what is said when none can be."""

import pytest

from charllm.errors import SpecError
from charllm.measure.quantities import QUANTITIES
from charllm.measure.telemetry import SOURCES, open_source
from charllm.measure.telemetry.nvml import Nvml, open_nvml
from charllm.measure.telemetry.source import REASONS, Source, TelemetryError
from tests.measure.nvml_stand_in import StandIn
from tests.measure.replayed import CAPTURE


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A machine with an NVIDIA driver, whatever this one has."""
    binding = StandIn()
    monkeypatch.setitem(SOURCES, "nvml", lambda _detail: open_nvml(binding))
    monkeypatch.setitem(SOURCES, "amdsmi", _no_amd_driver)
    return binding


def _no_amd_driver(_detail: str) -> Source:
    raise TelemetryError("no AMD driver")


@pytest.mark.parametrize("name", [f"replay:{CAPTURE}", "none"])
def test_a_source_is_opened_by_name(name: str) -> None:
    source = open_source(name)
    assert source.facts.name == name.partition(":")[0]
    source.close()


@pytest.mark.parametrize(
    ("asked", "near"), [("nvlm", "nvml"), ("repaly:x", "replay"), ("non", "none"), ("AUTO", "auto")]
)
def test_an_unknown_name_suggests_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(SpecError, match=f"--telemetry: .*did you mean {near}") as caught:
        open_source(asked)
    assert all(name in str(caught.value) for name in ("auto", *SOURCES))


def test_a_replay_needs_a_folder() -> None:
    with pytest.raises(SpecError, match="replay:FOLDER"):
        open_source("replay")


def test_auto_takes_the_driver_where_there_is_one(driver: StandIn) -> None:
    assert isinstance(open_source("auto"), Nvml)


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_auto_without_a_driver_is_none_with_the_reason_kept(driver: StandIn, function: str) -> None:
    driver.failures[function] = driver.NVML_ERROR_DRIVER_NOT_LOADED
    source = open_source("auto")
    assert source.facts.name == "none"
    assert source.facts.details["reason"] == (
        "nvml: no usable NVIDIA driver (Driver Not Loaded); amdsmi: no AMD driver"
    )


def test_nvml_by_name_without_a_driver_is_an_error_of_the_request(driver: StandIn) -> None:
    driver.failures["nvmlInit"] = driver.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(TelemetryError, match="Driver Not Loaded") as caught:
        open_source("nvml")
    assert caught.value.exit_code == 2


def test_every_source_gives_a_number_or_a_reason_for_every_quantity(driver: StandIn) -> None:
    sources: list[Source] = [open_source("auto"), open_source(f"replay:{CAPTURE}"), open_source("none")]
    for source in sources:
        readings = source.read(0, tuple(QUANTITIES))
        assert len(readings) == len(QUANTITIES)
        assert all(isinstance(value, float) or value in REASONS for value in readings)
