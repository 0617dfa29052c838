"""More hardware alone does not win: 32 GPUs with more memory against 64 with less, model by model."""

from collections.abc import Sequence

from charllm.reproduce.finding import Configuration, Finding, Number, Reading
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import H100, H200, MODELS, SCALE, Request, runs_of

SAME = "the same strategy on both, whether it suits them or not"
OURS, THEIRS, PLAIN = "cluster h200x32 / ", "cluster h100x64 / ", " / recompute none"


def more_hardware() -> Finding:
    """Twice the GPUs against twice the tokens."""
    return Finding(
        name="more-hardware",
        claim="Adding GPUs alone does not scale: 64 H100 give less than twice the tokens a second of 32 H200.",
        unit="% more tokens a second and GPU on 32 H200, each with its best strategy that fits",
        configurations=best_of_each("tokens_per_s_per_gpu"),
        least=5.0,
        note="Both GPUs have the same arithmetic. Best of all model-parallel strategies that fit, with overlap, and "
        "with recomputation or without. H200 have the memory to do without it, and half as many nodes share the "
        "work.",
    )


def scale_up() -> Finding:
    """Fewer, larger GPUs against more GPUs, in total."""
    same: dict[str, Configuration] = {}
    for case in runs_of(SCALE, starts=OURS, ends=PLAIN):
        strategy = case.removeprefix(OURS).removesuffix(PLAIN)
        sides = [list(runs_of(SCALE, starts=f"{cluster}{strategy} / ").values()) for cluster in (OURS, THEIRS)]
        same[strategy] = _against(sides[0], sides[1], "tokens_per_s")
    return Finding(
        name="scale-up",
        claim="Fewer GPUs with more memory (32 H200) can outrun more GPUs (64 H100) where communication binds.",
        unit="% more tokens a second on 32 H200 than on 64 H100",
        configurations=best_of_each("tokens_per_s"),
        least=0.0,
        headline="largest",
        some=True,
        note="Both sides with their best strategy: where one of them runs a strategy that does not suit it, the "
        "comparison says little. The configurations against it are the other half of the claim: there twice the "
        "GPUs are faster.",
        readings={SAME: Reading(same, is_judged=True)},
    )


def best_of_each(name: str) -> dict[str, Configuration]:
    """Return, for each model, the best of its runs on 32 H200 against the best on 64 H100."""
    return {
        f"{model}, best of each": _against(candidates(H200, model), candidates(H100, model), name) for model in MODELS
    }


def candidates(study: str, model: str) -> list[Request]:
    """Return the runs among which the best of a model is looked for.

    With overlap, which slows none of them, and with recomputation or without. FSDP is left out: on 100 Gb/s a node it
    is ten times slower and more, and its runs take longest to simulate.
    """
    runs = {**runs_of(study, starts=model, ends=" / cc"), **runs_of(study, starts=model, ends=" / cc+act")}
    return [run for case, run in runs.items() if "fsdp" not in case]


def _against(ours: Sequence[Request], theirs: Sequence[Request], name: str) -> Configuration:
    return Configuration((*ours, *theirs), best_percent(len(ours), name))


def best_percent(ours: int, name: str) -> Number:
    """Return by how many per cent the best of the first runs exceeds the best of the others, of those that fit."""

    def number(*rows: Row) -> float | None:
        sides = [
            [float(row[name]) for row in side if row.get("fits") and row.get(name) is not None]
            for side in (rows[:ours], rows[ours:])
        ]
        return 100 * (max(sides[0]) / max(sides[1]) - 1) if all(sides) else None

    return number
