"""Speed, power, temperature and clock of every configuration (figures 4, 8 and 13; H100, MI250 and LoRA beside)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase, conditions_of
from charllm.report.page.strategies import multiples
from charllm.reproduce.figures.emulated import with_emulated
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H100, H200, INFERENCE, LORA, MI250, MICROBATCH, PARALLELISM
from charllm.result.metrics import selected

PANELS = selected(
    "tokens_per_s_per_gpu", "tokens_per_j", "power_mean_w", "power_peak_sensor_w", "temperature_mean_c",
    "temperature_peak_c", "clock_mean_hz",
)  # fmt: skip


class StudyFigure(NamedTuple):
    """A figure of one study."""

    name: str
    study: str
    question: str
    sparse: bool | None = None
    """Only sparse models, only dense ones; None: all."""


FIGURES = (
    StudyFigure("figure-4", PARALLELISM, "Figure 4: throughput, power, temperature and clock by parallelism, 32 H200"),
    StudyFigure("figure-8", H200, "Figure 8: effect of overlap (cc) and recomputation (act), 32 H200"),
    StudyFigure("figure-13", MICROBATCH, "Figure 13: effect of the microbatch size, 32 H200"),
    StudyFigure(
        "h100-dense", H100, "H100: effect of overlap (cc) and recomputation (act), 64 GPUs, dense models", sparse=False
    ),
    StudyFigure(
        "h100-sparse",
        H100,
        "H100: effect of overlap (cc) and recomputation (act), 64 GPUs, mixture of experts",
        sparse=True,
    ),
    StudyFigure("mi250", MI250, "MI250: effect of overlap (cc) and recomputation (act), 32 GCDs"),
    StudyFigure("lora-dense", LORA, "LoRA by parallelism and microbatch size, 32 H200, dense models", sparse=False),
    StudyFigure(
        "lora-sparse", LORA, "LoRA by parallelism and microbatch size, 32 H200, mixture of experts", sparse=True
    ),
    StudyFigure(
        "inference", INFERENCE,
        "The artifact's inference: forward passes by parallelism and microbatch size, 32 H200 (nothing is generated; "
        "its Mixtral files start LoRA training, see there)",
    ),
)  # fmt: skip


def strategy_figures(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the figures that show every case of a study."""
    found = []
    for wanted in FIGURES:
        listed = [
            case for case in cases.get(wanted.study, ()) if wanted.sparse in (None, case.group.startswith("mixtral"))
        ]
        if listed:
            ran = sum(case.ran for case in listed)
            rejected = (
                f" {len(listed) - ran} do not fit or are not valid, with the reason." if ran < len(listed) else ""
            )
            message = (
                f"{len(listed)} configurations.{rejected} Efficiency is tokens per joule; the artifact's is "
                "1 / (energy x delay)."
            )
            figure = multiples(listed, PANELS, wanted.name, wanted.question, message, conditions_of(listed))
            found.append(with_emulated(figure, listed))
    return found
