from charllm.measure.quantities import QUANTITIES
from charllm.measure.telemetry import open_none, open_source


def test_no_telemetry_has_no_gpus_and_reads_nothing() -> None:
    source = open_source("none")
    assert (source.facts.name, source.facts.gpus, source.facts.details) == ("none", (), {})
    assert source.read(0, tuple(QUANTITIES)) == ["not_supported"] * len(QUANTITIES)
    source.close()


def test_the_reason_is_kept() -> None:
    assert open_none("nvml: no driver").facts.details == {"reason": "nvml: no driver"}
