"""How far is a measured or emulated run from its prediction?"""

from charllm.report.figure import Figure
from charllm.report.page.cases import case_of_run
from charllm.report.page.sides import sides
from charllm.report.page.view import RunView

CONDITIONS = "the prediction holds for the settings that the run left, at thermal steady state"


def prediction_figure(run: RunView) -> Figure | None:
    """Return every main metric of a run beside its prediction, with errors; None for a run that is a prediction."""
    if run.result.origin == "simulated" or run.prediction is None:
        return None
    read = case_of_run(run.result.origin, run, _intervals(run))
    predicted = case_of_run("predicted", RunView(run.prediction))
    figure = sides([read, predicted], CONDITIONS)
    return None if figure.missing else _named(figure, run.result.origin)


def _named(figure: Figure, origin: str) -> Figure:
    question = f"How far is the prediction from what was {origin}?"
    return Figure(
        "prediction", figure.kind, question, figure.message, figure.columns, figure.options, figure.conditions
    )


def _intervals(run: RunView) -> dict[str, tuple[float, float]]:
    found = {metric: run.interval(metric) for metric in run.result.metrics}
    return {metric: ends for metric, ends in found.items() if ends is not None}
