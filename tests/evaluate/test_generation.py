"""Published generation against predictions."""

from charllm.evaluate.generation import DECODE, GROUPS, LATENCY, PREFILL, predict_rows, read_rows

ROWS = read_rows()


def test_every_row_is_predicted_or_left_out_with_a_reason() -> None:
    few = ROWS[::25]
    rows, left_out = predict_rows(few)
    assert len(rows) + sum(left_out.values()) == len(few)
    assert all(": " in reason for reason in left_out)
    assert all(row.predicted_s > 0 for row in rows)


def test_static_decode_and_prefill_of_engines_err_little_with_nothing_fitted() -> None:
    rows, _left_out = predict_rows(row for row in ROWS if row["load"].startswith("static"))
    for name, most in (("dense static decode", 0.08), ("prefill", 0.10)):
        sizes = sorted(abs(row.error_fraction) for row in rows if GROUPS[name](row))
        assert sizes[len(sizes) // 2] < most
    assert {row.kind for row in rows} >= {PREFILL, DECODE}


def test_steps_under_load_err_little_and_their_context_grows_with_the_answers() -> None:
    rows, _left_out = predict_rows(row for row in ROWS[::2] if row["metric"].startswith("ITL"))
    assert {row.kind for row in rows} == {LATENCY}
    for name, most in (("dense, time per token under load", 0.10), ("experts, time per token under load", 0.20)):
        sizes = sorted(abs(row.error_fraction) for row in rows if GROUPS[name](row))
        assert sizes[len(sizes) // 2] < most
