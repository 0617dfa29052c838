"""Write fitted constants where the model reads them: the catalog, `timeline/constants.py` and `software_columns.py`."""

import re
from pathlib import Path

from charllm.evaluate.fit import UNDESCRIBED, Values

PACKAGE = Path(__file__).parent.parent
FRAMEWORKS = ("catalog/frameworks/megatron.toml", "catalog/frameworks/pytorch.toml")
LINES = {
    "library.h100": ("evaluate/software_columns.py", r'(SLOW_LIBRARY_FRACTIONS = \{"h100": )[^,]+(,)'),
    "timeline.uneven_host_fraction": ("timeline/constants.py", r"(uneven_host_fraction: float = )\S+()"),
}
"""Constant: its file, and what stands around its value there."""
SECTION = re.compile(r"^\[([\w-]+)\]\n(?:(?!\[\w).*\n)*", flags=re.MULTILINE)
UNDESCRIBED_LINE = r'(undescribed_fraction = \[)[^,]+(, "fit"\])'


def ship(values: Values, package: Path = PACKAGE) -> None:
    """Write each constant, to three digits, in its place."""
    for name, (file, around) in LINES.items():
        text = (package / file).read_text(encoding="utf-8")
        (package / file).write_text(put(text, around, values[name], file), encoding="utf-8")
    for file in FRAMEWORKS:
        text = SECTION.sub(lambda part: _undescribed(part, values), (package / file).read_text(encoding="utf-8"))
        (package / file).write_text(text, encoding="utf-8")


def put(text: str, around: str, value: float, where: str) -> str:
    """Return the text with a value in the one place that a pattern surrounds."""
    changed, count = re.subn(around, rf"\g<1>{value:.3g}\g<2>", text)
    if count != 1:
        raise ValueError(f"{where}: got {count} places of {around}; expected one")
    return changed


def _undescribed(part: re.Match[str], values: Values) -> str:
    """Return the table of a profile with its small kernels' traffic, where that is fitted."""
    profile, text = part[1], part[0]
    if not re.search(UNDESCRIBED_LINE, text):
        return text
    return put(text, UNDESCRIBED_LINE, values[f"undescribed.{UNDESCRIBED[profile]}"], profile)
