"""Scale-up against scale-out: 32 GPUs with more memory against 64 GPUs with less, model by model."""

from collections.abc import Sequence

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, Number, Reading
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import H100, H200, MODELS, SCALE, Request, runs_of

BEST = "the fastest strategy of each cluster"
OURS, THEIRS, PLAIN = "cluster charllm-ppt-h200 / ", "cluster charllm-ppt-h100 / ", " / recompute none"


def more_hardware() -> Finding:
    """Twice the GPUs against twice the throughput."""
    return Finding(
        claim=read_claims()["more-hardware"],
        configurations=best_of_each("tokens_per_s_per_gpu"),
    )


def scale_up() -> Finding:
    """Fewer, larger GPUs against more GPUs, strategy by strategy."""
    return Finding(
        claim=read_claims()["scale-up"],
        configurations=_same("tokens_per_s"),
        readings={BEST: Reading(best_of_each("tokens_per_s"), is_judged=True)},
    )


def scale_out() -> Finding:
    """The other cases of the same sentence."""
    return Finding(
        claim=read_claims()["scale-out"],
        configurations=_same("tokens_per_s", less=True),
        readings={BEST: Reading(best_of_each("tokens_per_s", less=True), is_judged=True)},
    )


def _same(name: str, *, less: bool = False) -> dict[str, Configuration]:
    """Return every strategy that both clusters run, on one against the other."""
    found = {}
    for case in runs_of(SCALE, starts=OURS, ends=PLAIN):
        strategy = case.removeprefix(OURS).removesuffix(PLAIN)
        sides = [list(runs_of(SCALE, starts=f"{cluster}{strategy} / ").values()) for cluster in (OURS, THEIRS)]
        found[strategy] = _against(sides[0], sides[1], name, less=less)
    return found


def best_of_each(name: str, *, less: bool = False) -> dict[str, Configuration]:
    """Return, for each model, the best of its runs on 32 H200 against the best on 64 H100."""
    return {model: _against(candidates(H200, model), candidates(H100, model), name, less=less) for model in MODELS}


def candidates(study: str, model: str) -> list[Request]:
    """Return the runs among which the best of a model is looked for.

    With overlap, which slows none of them, and with recomputation or without. FSDP is left out: on 100 Gb/s a node it
    is ten times slower and more, and its runs take longest to simulate.
    """
    runs = {**runs_of(study, starts=model, ends=" / cc"), **runs_of(study, starts=model, ends=" / cc+act")}
    return [run for case, run in runs.items() if "fsdp" not in case]


def _against(ours: Sequence[Request], theirs: Sequence[Request], name: str, *, less: bool) -> Configuration:
    return Configuration((*ours, *theirs), best_percent(len(ours), name, -1.0 if less else 1.0))


def best_percent(ours: int, name: str, sign: float = 1.0) -> Number:
    """Return by how many per cent the best of the first runs exceeds the best of the others, of those that fit."""

    def number(*rows: Row) -> float | None:
        sides = [
            [float(row[name]) for row in side if row.get("fits") and row.get(name) is not None]
            for side in (rows[:ours], rows[ours:])
        ]
        return sign * 100 * (max(sides[0]) / max(sides[1]) - 1) if all(sides) else None

    return number
