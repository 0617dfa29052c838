"""How a figure of stacked bars is drawn: which column holds bars, parts and sizes, and what the parts are called."""

from collections.abc import Mapping
from typing import Any


def bar_options(
    parts: Mapping[str, str],
    value: str,
    unit: str,
    palette: str,
    *,
    part: str = "part",
    total: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return the options of a figure whose column `bar` names bars; `parts` gives the words of each part, in order."""
    return {"bar": "bar", "part": part, "value": value, "order": list(parts), "palette": palette,
            "labels": dict(parts), "total": total, "unit": unit, **more}  # fmt: skip
