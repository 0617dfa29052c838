"""Hugging Face Trainer (and TRL, LLaMA-Factory, Axolotl, ms-swift): a dict of metrics for every `logging_steps` steps.

A dict seldom says its step. It follows from the program's own counters, the surest first: a step in the dict; `epoch`
times the steps of an epoch, where epochs are printed finely enough; the progress bar, which is drawn again after each
dict; else the one whole number of steps a line that agrees with all epochs and with the steps of the whole run.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import find_pairs, to_fields
from charllm.measure.logs.program import Found, Program
from charllm.measure.logs.progress import Bar, find_bar, read_elapsed_s
from charllm.units import whole_number

METRICS = re.compile(r"\{\s*['\"](?:train_)?loss['\"]\s*:[^{}]*\}")
END = re.compile(r"\{[^{}]*['\"]train_runtime['\"]\s*:[^{}]*\}")
EPOCH = re.compile(
    r"['\"]epoch['\"]\s*:\s*(?P<quote>['\"]?)(?P<epoch>\d{1,9}(?:\.(?P<digits>\d{1,20}))?(?:e[-+]?\d{1,3})?)"
)
RUNTIME = re.compile(r"['\"]train_runtime['\"]\s*:\s*['\"]?(\d{1,12}(?:\.\d{1,9})?)")
RATE = re.compile(r"['\"]train_steps_per_second['\"]\s*:\s*['\"]?(\d{1,9}(?:\.(?P<digits>\d{1,9}))?)")
MOST_UNSURE_STEPS = 0.5
QUOTED_DIGITS = 4
"""Significant digits that the trainer prints where it quotes its numbers."""
STEP = re.compile(r"['\"](?:global_)?step(?:/max_steps)?['\"]\s*:\s*['\"]?(\d{1,15})")
STATED = re.compile(r"(?P<name>Num examples|Total train batch size[^=]*|Num update steps per epoch|"
                    r"Total optimization steps) = (?P<value>[\d,]{1,20})")  # fmt: skip
ELAPSED = re.compile(r"['\"]elapsed_time['\"]\s*:\s*['\"]([\w :,]{1,40})['\"]")
LOGGED_TOO = "llamafactory"
"""LLaMA-Factory's web page logs each dict a second time, by a logger of this name."""
BEGIN = "***** Running training *****"
MOST_POSSIBLE = 1000


class Report(NamedTuple):
    """One dict, with the bars around it."""

    text: str
    line: Line
    bar: Bar | None
    """Drawn before the dict, or right after it."""


class Run(NamedTuple):
    """One call of `Trainer.train`: its dicts, and the sizes that it stated."""

    reports: list[Report]
    stated: dict[str, int]
    end: str = ""
    """The dict that sums it up."""

    @property
    def steps(self) -> float | None:
        """Steps of the whole run, where the log says them."""
        if "Total optimization steps" in self.stated:
            return float(self.stated["Total optimization steps"])
        totals = [report.bar.total for report in self.reports if report.bar and report.bar.total]
        if totals:
            return float(max(totals))
        rate, seconds = RATE.search(self.end), RUNTIME.search(self.end)
        if not rate or not seconds:
            return None
        # A rate is printed with few digits: of a slow run it does not say the steps.
        steps, unsure = (
            float(value) * float(seconds[1]) for value in (rate[1], 10.0 ** -len(rate["digits"] or "") / 2)
        )
        return steps if unsure < MOST_UNSURE_STEPS else None

    @property
    def epoch_steps(self) -> float | None:
        """Steps of an epoch."""
        stated = self.stated.get("Num update steps per epoch")
        examples, batch = self.stated.get("Num examples"), self.stated.get("Total train batch size")
        if stated or (examples and batch):
            return float(stated or math.ceil((examples or 0) / (batch or 1)))
        last = EPOCH.search(self.end)
        epochs = float(last["epoch"]) if last else 0.0
        return self.steps / epochs if self.steps and epochs else None


def read_dicts(lines: Sequence[Line]) -> Iterator[Found]:
    """List the dicts with the step that each ends at; those whose steps nothing tells are left out."""
    for run in _runs(lines):
        for place, (report, number) in enumerate(zip(run.reports, number_reports(run), strict=True)):
            if number is None:
                continue
            fields = to_fields(find_pairs(report.text))
            clock = ELAPSED.search(report.text)
            shown_s = read_elapsed_s(clock[1]) if clock else report.bar.elapsed_s if report.bar else None
            if shown_s is not None:
                fields["elapsed_s"] = shown_s
            # What a bar has smoothed does not say how long many steps before it took; later dicts do.
            if report.bar and report.bar.seconds and (place or len(run.reports) == 1):
                fields.setdefault("mean_s", report.bar.seconds)
            yield number, fields, report.line


def read_mean_step_s(lines: Sequence[Line]) -> float | None:
    """Return the mean step of a log's only run, as the trainer sums it up: what came before its first step counts."""
    ends = [found[0] for line in lines if (found := END.search(line.text))]
    rates = (
        [pair.value for pair in find_pairs(ends[0]) if pair.key == "train_steps_per_second"] if len(ends) == 1 else []
    )
    return 1 / rates[0] if rates and rates[0] > 0 else None


def _runs(lines: Sequence[Line]) -> Iterator[Run]:
    run, bar = Run([], {}), None
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        if BEGIN in line.text and run.reports:
            yield run
            run, bar = Run([], {}), None
        stated = STATED.search(line.text)
        if stated:
            run.stated[stated["name"].split(" (")[0]] = whole_number(stated["value"].replace(",", "")) or 0
        end = END.search(line.text)
        if end:
            yield run._replace(end=end[0])
            run, bar = Run([], {}), None
            continue
        found = METRICS.search(line.text) if LOGGED_TOO not in line.text else None
        bar = find_bar(line.text[: found.start()] if found else line.text) or bar
        if found:
            drawn = find_bar(after.text) if after is not None else None
            bar = drawn if drawn is not None and (bar is None or drawn.done >= bar.done) else bar
            run.reports.append(Report(found[0], line, bar))
    yield run


def number_reports(run: Run) -> list[int | None]:
    """Return the step that each dict of a run ends at; None where nothing says it."""
    epochs = _epochs(run)
    each = run.epoch_steps or math.inf
    usual = _usual_steps(run, epochs)
    numbers: list[int | None] = []
    for place, (report, epoch) in enumerate(zip(run.reports, epochs, strict=True)):
        own = STEP.search(report.text)
        if own:
            numbers.append(int(own[1]))
        elif epoch is not None and epoch.resolution * each < 1:
            numbers.append(round(epoch.value * each))
        elif report.bar:
            numbers.append(report.bar.done)
        else:
            numbers.append((place + 1) * usual if usual else None)
    return numbers


class Epoch(NamedTuple):
    """How far a run is, in passes through its data."""

    value: float
    resolution: float


def _epochs(run: Run) -> list[Epoch | None]:
    found = [EPOCH.search(report.text) for report in run.reports]
    decimals = max((len(one["digits"] or "") for one in found if one), default=0)
    return [_read_epoch(one, decimals) if one else None for one in found]


def _read_epoch(found: re.Match[str], decimals: int) -> Epoch:
    value = float(found["epoch"])
    if not found["quote"] or not value:
        return Epoch(value, 10.0**-decimals)
    return Epoch(value, 10.0 ** (math.floor(math.log10(value)) - QUOTED_DIGITS + 1))


def _usual_steps(run: Run, epochs: Sequence[Epoch | None]) -> int | None:
    """Return how many steps each of evenly logged dicts covers, where whole numbers leave a choice of one."""
    count, each, total = len(epochs), run.epoch_steps, run.steps
    last = next((one for one in reversed(epochs) if one), None)
    if not count or each is None or last is None:
        return None
    low, high = ((last.value + side * last.resolution / 2) * each / count for side in (-1, 1))
    if run.end and total:
        # The last dict lies within the last `logging_steps` of the run.
        low, high = max(low, total / (count + 1) * 1.0001), min(high, total / count * 1.0005)
    possible = list(range(max(1, math.ceil(low)), math.floor(high) + 1))[:MOST_POSSIBLE]
    if len(possible) > 1 and total:
        possible = [one for one in possible if round(total) % one == 0]
    return possible[0] if len(possible) == 1 else None


HUGGINGFACE = Program(
    mark=METRICS,
    words=(b"loss", b"s/it", b"it/s", b"***** Running", b"Num ", b"Total "),
    read=read_dicts,
    mean_step_s=read_mean_step_s,
    unread="how many steps each of its dicts covers is not said: train with a progress bar (disable_tqdm=False), or "
    "with charllm.callbacks.HuggingFace()",
)
