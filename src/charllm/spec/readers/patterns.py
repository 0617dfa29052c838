"""Which layers of a model are what: letters of all layers as the shortest fields that say so."""

from typing import Any

Table = dict[str, Any]


def describe_mixers(letters: str, window: int = 0) -> Table:
    """Return the fields that say what mixes tokens in each layer, the shortest way."""
    with_window: Table = {"window": window} if "w" in letters else {}
    if set(letters) <= {"*"}:
        return {}
    if set(letters) == {"w"}:
        return with_window
    period = shortest_period(letters)
    if set(period) == {"*", "w"} and period == "w" * (len(period) - 1) + "*":
        return {**with_window, "full_attention_every": len(period)}
    return {**with_window, "mixers": period}


def shortest_period(letters: str) -> str:
    """Return the shortest pattern that, repeated, begins with these letters."""
    for length in range(1, len(letters)):
        if letters == (letters[:length] * (len(letters) // length + 1))[: len(letters)]:
            return letters[:length]
    return letters


def describe_sparse(letters: str) -> Table:
    """Return the fields that say which layers have experts (E), the shortest way."""
    dense = letters.index("E") if "E" in letters else len(letters)
    if letters == "-" * dense + "E" * (len(letters) - dense):
        return {"dense_layers": dense}
    return {"sparse_layers": shortest_period(letters)}
