"""A recording played again: the same readings at the same pace, for tests and for looking back."""

import time
from pathlib import Path

import numpy as np

from charllm.measure.recording import Recording, Series, read_recording
from charllm.measure.telemetry.source import Reading, SourceFacts, TelemetryError


class Replay:
    """A source that answers with what was recorded at the same time since the start."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        starts = [float(recording.fast(gpu).times_s[0]) for gpu in recording.series if len(recording.fast(gpu).times_s)]
        if not starts:
            raise TelemetryError("the recording to replay holds no readings")
        self._first_s = min(starts)
        self.began_s = time.monotonic()
        """When the first reading was shown; earlier for a sampler that was started again."""
        facts = recording.facts
        self.facts = SourceFacts("replay", facts.gpus, facts.capabilities, {**facts.details, "replayed": facts.name})

    def read(self, gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        """Return the last readings before the present place in the recording; at its end it stays."""
        now_s = self._first_s + time.monotonic() - self.began_s
        return [_reading_at(self._recording.series_of(gpu, name), name, now_s) for name in quantities]

    def close(self) -> None:
        """Nothing to let go of."""


def _reading_at(series: Series, quantity: str, now_s: float) -> Reading:
    if not len(series.times_s):
        return "not_supported"
    place = max(0, int(np.searchsorted(series.times_s, now_s, side="right")) - 1)
    value = float(series.columns[quantity][place])
    if np.isfinite(value):
        return value
    return series.reasons[quantity][place]


def open_replay(folder: str) -> Replay:
    """Open a recording to play it again."""
    return Replay(read_recording(Path(folder)))
