"""A preflight for people: one line a check, failures first, then what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import render_table

ORDER = ("failure", "warning", "not readable", "ok")
COLUMNS = ("state", "check", "node", "found", "expected")


def render_preflight(checks: Sequence[Mapping[str, Any]]) -> str:
    """Render the checks."""
    ranked = sorted(checks, key=lambda check: ORDER.index(check["state"]))
    rows = [
        (check["state"], check["name"], check["node"] or "all", check["found"], check["expected"]) for check in ranked
    ]
    counts = ", ".join(f"{sum(check['state'] == state for check in checks)} {state}" for state in ORDER)
    table = render_table(f"Preflight: {counts}", COLUMNS, rows, drop=("expected", "node"))
    advice = [
        f"{check['name']} ({check['node'] or 'all nodes'}): {check['advice']}" for check in ranked if check["advice"]
    ]
    return "\n\n".join([table, *(["\n".join(["What to do:", *(f"  {line}" for line in advice)])] if advice else [])])
