"""One cluster for all tests of this folder, started when the first of them needs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two H200s at work."""
    from tests.measure.replays import make_replay

    return make_replay(Path(tmp_path_factory.mktemp("capture")) / "two", gpus=2)
