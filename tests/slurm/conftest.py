"""One cluster for all tests of this folder, started when the first of them needs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measure.replays import make_replay
from tests.slurm.cluster import Cluster, running

LAST_S = 22.5
"""Half a second before the capture's end; a replay stays at its last readings."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two H200s at work."""
    return make_replay(Path(tmp_path_factory.mktemp("capture")) / "two", gpus=2)


@pytest.fixture(scope="session")
def steady(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two H200s at rest, whose readings stay the same whenever they are read."""
    return make_replay(Path(tmp_path_factory.mktemp("capture")) / "steady", gpus=2, from_s=LAST_S)
