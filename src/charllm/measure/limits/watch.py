"""Watch that a limited job stays as fast as was promised; where it does not, its limits are put back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from charllm.measure.live.marks import STEPS_SHOWN, MarksReader

EVERY_S = 5.0


@contextmanager
def watching(
    folder: Path, least_tokens_per_s: float | None, give_up: Callable[[float], None], every_s: float = EVERY_S
) -> Iterator[None]:
    """Call `give_up` once, with the rate, where the newest steps of a job are slower than a rate."""
    ended = Event()

    def look() -> None:
        reader = MarksReader()
        while least_tokens_per_s is not None and not ended.wait(every_s):
            job = reader.look([folder], None)
            if (job.steps or 0) > STEPS_SHOWN and job.tokens_per_s and job.tokens_per_s < least_tokens_per_s:
                give_up(job.tokens_per_s)
                return

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
