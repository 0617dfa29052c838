"""The paper's figures, right labels and units, and those that its artifact lacks: one file a subject.

A builder takes the cases of the studies and the rows of further runs, and returns figures; it simulates nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase
from charllm.reproduce.figures.emulated import emulated
from charllm.reproduce.figures.heat import imbalance, temperatures, throttling
from charllm.reproduce.figures.projections import projections
from charllm.reproduce.figures.seconds import kernel_seconds, stage_seconds, traffic
from charllm.reproduce.figures.strategies import strategy_figures
from charllm.reproduce.looks import Rows

Cases = Mapping[str, Sequence[StudiedCase]]
FIGURES: tuple[Callable[[Cases, Rows], list[Figure]], ...] = (
    strategy_figures, traffic, kernel_seconds, stage_seconds, temperatures, throttling, imbalance, projections,
    emulated,
)  # fmt: skip
