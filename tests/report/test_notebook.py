"""Views for a notebook: the text's tables and paragraphs as HTML."""

import charllm
from charllm.report.notebook import write_html
from charllm.report.tables import render_table


def test_tables_become_tables_with_every_column_and_text_becomes_paragraphs() -> None:
    names, row = [f"column {number}" for number in range(40)], ["a < b"] * 40

    def render() -> str:
        return f"{render_table('A title', names, [row])}\n\nAnd & a sentence."

    html = write_html(render)
    assert html.count("<th ") == html.count("<td>") == 40
    assert "a &lt; b" in html
    assert '">And &amp; a sentence.</p>' in html
    # Afterwards tables are text again, as wide as the terminal.
    assert "columns not shown" in render()


def test_plans_sweeps_comparisons_caps_and_budgets_show_as_tables() -> None:
    small = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "gbs": 32}
    pinned = {"pp": 1, "cp": 1, "mbs": 1, "zero": 1, "recompute": "none", "overlap": "dp", "top": 1}
    one, two = (charllm.simulate(**{**small, "tp": tp}) for tp in (2, 4))  # type: ignore[arg-type]
    shown = (
        charllm.plan(**small, **pinned),  # type: ignore[arg-type]
        charllm.sweep(axes={"mbs": [1, 2]}, base=small),
        charllm.compare(one, two),
        charllm.caps(**small, at=[700, 500]),  # type: ignore[arg-type]
        charllm.budget(**{**small, **pinned, "cluster": ["h200x8", "h100x8"]}),  # type: ignore[arg-type]
    )
    for view in shown:
        html = view._repr_html_()
        assert "<table>" in html
        assert "\0" not in html
        assert len(repr(view)) < 100
        assert "\n" not in repr(view)
    assert repr(shown[0]).startswith("Plan(throughput: tp 2")
    assert repr(shown[1]) == "Sweep(sweep: 2 with a result)"
    assert repr(shown[3]) in [f"Caps(power per gpu; points: 2; knee: {cap} W)" for cap in (700, 500)]
    for view in (shown[1], shown[2], shown[3]):
        assert len(str(view).splitlines()) > 3
    assert repr(shown[-1]) == "Budget(throughput: h200x8 meets, h100x8 meets)"
