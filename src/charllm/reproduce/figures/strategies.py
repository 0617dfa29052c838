"""Speed, power, temperature and clock of every configuration (figures 4, 8 and 13; H100, MI250 and LoRA beside)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase, conditions_of
from charllm.report.page.strategies import multiples
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H100, H200, LORA, MI250, MICROBATCH, PARALLELISM

PANELS = (
    "tokens_per_s_per_gpu", "tokens_per_j", "power_mean_w", "power_peak_sensor_w", "temperature_mean_c",
    "temperature_peak_c", "clock_mean_hz",
)  # fmt: skip


class Asked(NamedTuple):
    """A figure of one study."""

    name: str
    study: str
    question: str
    sparse: bool | None = None
    """Only sparse models, only dense ones; None: all."""


ASKED = (
    Asked("figure-4", PARALLELISM, "Figure 4: which parallelism, and what does it cost?"),
    Asked("figure-8", H200, "Figure 8: what do overlap and recomputation do on 32 H200?"),
    Asked("figure-13", MICROBATCH, "Figure 13: what does the size of microbatches do?"),
    Asked("h100-dense", H100, "Overlap and recomputation on 64 H100: dense models", sparse=False),
    Asked("h100-sparse", H100, "Overlap and recomputation on 64 H100: mixtures of experts", sparse=True),
    Asked("mi250", MI250, "Overlap and recomputation on 32 dies of MI250"),
    Asked("lora-dense", LORA, "LoRA on 32 H200: dense models", sparse=False),
    Asked("lora-sparse", LORA, "LoRA on 32 H200: mixtures of experts", sparse=True),
)


def strategy_figures(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the figures that show every case of a study."""
    found = []
    for asked in ASKED:
        listed = [
            case for case in cases.get(asked.study, ()) if asked.sparse in (None, case.group.startswith("mixtral"))
        ]
        if listed:
            ran = sum(case.ran for case in listed)
            message = (
                f"{len(listed)} configurations, {ran} with a result; the others say why not. Tokens per joule are "
                "tokens per joule: the artifact's efficiency is one over energy times delay."
            )
            found.append(multiples(listed, PANELS, asked.name, asked.question, message, conditions_of(listed)))
    return found
