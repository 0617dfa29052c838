"""Faster networks and more GPUs."""

from collections.abc import Mapping, Sequence

from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase, conditions_of
from charllm.report.page.strategies import multiples
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import DATACENTER, NETWORK, SCALE
from charllm.result.metrics import selected

PANELS = selected("tokens_per_s_per_gpu", "tokens_per_j", "temperature_peak_c", "clock_mean_hz")
ASKED = (
    (NETWORK, "network", "Projection: 100 to 800 Gb/s per node on 32 H200"),
    (DATACENTER, "datacenter", "Projection: 32 to 8,192 H200 at 100 and 800 Gb/s per node"),
    (SCALE, "scale", "32 H200 against 64 H100 with the same strategies"),
)


def projections(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return speed, efficiency, temperature and clock of what the paper projects."""
    message = "Every point is a full simulation; the paper extrapolates."
    return [
        multiples(listed, PANELS, name, question, message, conditions_of(listed))
        for study, name, question in ASKED
        if (listed := cases.get(study, ()))
    ]
