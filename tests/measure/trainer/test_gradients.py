"""Gradients laid end to end and cut into buckets."""

import pytest

from charllm.measure.trainer.gradients import cut_buckets


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[10], [3, 5, 2], [1, 1, 30, 7]])
def test_buckets_are_equal_and_hold_every_element_once_in_order(sizes: list[int], count: int, multiple: int) -> None:
    length, buckets = cut_buckets(sizes, count, multiple)
    assert len(buckets) == count
    assert length % multiple == 0
    assert length * count >= sum(sizes) > (length - multiple) * count
    placed = [
        (number * length + part.offset + at, (part.weight, part.start + at))
        for number, bucket in enumerate(buckets)
        for part in bucket
        for at in range(part.stop - part.start)
    ]
    assert [where for where, _what in placed] == list(range(sum(sizes)))
    assert [what for _where, what in placed] == [
        (tensor, at) for tensor, size in enumerate(sizes) for at in range(size)
    ]
