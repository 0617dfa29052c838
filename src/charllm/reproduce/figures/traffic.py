"""What each link carries (figure 5), and how well messages use it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from charllm.report.figure import Column, Figure
from charllm.report.page.case_links import case_links
from charllm.report.page.cases import StudiedCase, conditions_of, title
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H200
from charllm.result.metrics import LINK_WORDS, LINKS
from charllm.units import GIGA


def traffic(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return bytes sent per GPU and step by link, and achieved bandwidth against message size."""
    listed = [case for case in cases.get(H200, ()) if case.name.endswith(" / base") and case.ran and case.gpus]
    if not listed:
        return []
    rows = [(case, link, _sent_gb(case, link)) for case in listed for link in LINKS if _sent_gb(case, link)]
    columns = {
        "group": Column("model", [case.group for case, _, _ in rows]),
        "bar": Column("configuration", [title(case).removesuffix(" / base") for case, _, _ in rows]),
        "part": Column("link", [LINK_WORDS[link] for _, link, _ in rows]),
        "sent": Column("sent per GPU and step", [sent for _, _, sent in rows], "GB", 3),
    }
    options = {"bar": "bar", "part": "part", "value": "sent", "group": "group", "unit": "GB", "palette": "series",
               "horizontal": True}  # fmt: skip
    most = max(rows, key=lambda row: row[2])
    message = (
        f"All links of a GPU, counted at the sender. Maximum: {title(most[0])}, {most[2]:.0f} GB over "
        f"{LINK_WORDS[most[1]]}. The artifact reads one of 18 NVLinks, and only 32 bits of its counters."
    )
    question = "Figure 5: data sent per GPU and step, by link"
    figures = [Figure("figure-5", "stacked-bars", question, message, columns, options, conditions_of(listed))]
    scatter = case_links(listed, conditions_of(listed))
    return [
        *figures,
        replace(scatter, name="figure-5-messages", question="Figure 5: achieved bandwidth by message size"),
    ]


def _sent_gb(case: StudiedCase, link: str) -> float:
    sent = case.values.get(f"link_bytes.{link}")
    return float(sent) / (case.gpus or 1.0) / GIGA if sent else 0.0
