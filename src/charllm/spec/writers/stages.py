"""Uneven pipeline stages in the words of Megatron-Core: the layers of the first and last stage, or a layout of all."""

from collections.abc import Sequence

Ends = tuple[int | None, int | None]


def uneven_ends(split: Sequence[int], vpp: int) -> Ends | None:
    """Return the layers of the first and last stage where only those differ from the rest; None where others do."""
    if vpp > 1:
        return None
    if len(split) == 2:
        return split[0], None
    first, *middle, last = split
    if len(set(middle)) > 1:
        return None
    return (None if first == middle[0] else first), (None if last == middle[0] else last)


def write_layout(split: Sequence[int], mtp_layers: int) -> str:
    """Return ``Ett|ttt|tmL``: embedding, a t for each layer, an m for each that predicts a further token, loss."""
    return f"E{'|'.join('t' * layers for layers in split)}{'m' * mtp_layers}L"
