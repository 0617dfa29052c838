"""Messages as people read them."""

from charllm.report.messages import render_comparison, render_messages
from charllm.trace.compare import MessageRow


def test_ranks_with_a_stride_are_written_short() -> None:
    rows = [MessageRow(0, "pp", (0, 8, 16, 24), "send", 1024, 4), MessageRow(0, "tp", (0, 1), "all_reduce", 2048, 2)]
    text = render_messages(rows, 0)
    assert "0-24/8" in text
    assert "0,1" in text
    assert "4 KiB" in text


def test_a_rank_alone_sends_nothing() -> None:
    assert render_messages([], 3) == "Rank 3 sends nothing"
    assert render_comparison([]) == "No messages, simulated or traced"


def test_a_group_is_equal_only_if_every_message_of_every_rank_is() -> None:
    equal = MessageRow(0, "tp", (0, 1), "all_reduce", 8, 2, 2)
    wrong = MessageRow(1, "tp", (0, 1), "all_reduce", 8, 2, 3)
    assert "yes" in render_comparison([equal])
    text = render_comparison([equal, wrong])
    assert "NO" in text
    assert "Messages that differ" in text
    assert "Messages that differ" not in render_comparison([equal])
