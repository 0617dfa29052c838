"""Let people and Prometheus see a run while it is measured."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from charllm.measure.live.endpoint import serving
from charllm.measure.live.show import watching


@contextlib.contextmanager
def observed(folder: Path, *, watch: bool, prometheus: str | None = None) -> Iterator[None]:
    """Show a run on stderr and serve its metrics beside what happens inside, each where it was asked for."""
    with contextlib.ExitStack() as stack:
        if prometheus:
            stack.enter_context(serving(folder, prometheus))
        if watch:
            stack.enter_context(watching(folder))
        yield
