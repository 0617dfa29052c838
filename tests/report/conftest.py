import pytest


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every table the room it asks for; tests of narrow ones say their width."""
    monkeypatch.setenv("COLUMNS", "250")
