"""Write fitted constants into the catalog and cost/calibration.py.

python -m benchmarks.apply_fit FIT.json      (as benchmarks.fit_time --write leaves it)
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "charllm"
SOURCE = "derived: fitted on published step times, held near operator tables and measured ops (benchmarks/fit_time.py)"
HEADS = {"a100": "a100-80gb", "v100": "v100-32gb"}
"""Family of GPUs: the entry its members are based on."""
NO_FP8, NO_FP4 = ("a100", "v100", "mi250"), ("h1", "h2", "mi30", "mi32")


def set_figure(path: Path, entry: str, field: str, value: float) -> None:
    """Write one figure of one entry, with the fit as its source."""
    text = path.read_text(encoding="utf-8")
    head = text.index(f"\n[{entry}]\n") + 1
    end = text.find("\n[", head)
    body = text[head:] if end < 0 else text[head : end + 1]
    line = f'{field} = [{value:.4g}, "fit"]'
    pattern = re.compile(rf"^{field} = .*$", re.MULTILINE)
    changed = pattern.sub(line, body) if pattern.search(body) else body.rstrip("\n") + f"\n{line}\n" + "\n" * (end >= 0)
    text = text[:head] + changed + (text[head + len(body) :])
    if "\nfit = " not in text:
        text = text.replace("[sources]\n", f'[sources]\nfit = "{SOURCE}"\n', 1)
    path.write_text(text, encoding="utf-8")


def find_entry(kind: str, name: str) -> Path:
    """Return the catalog file that holds an entry."""
    return next(
        path for path in sorted((ROOT / "catalog" / kind).glob("*.toml")) if f"\n[{name}]\n" in path.read_text()
    )


def set_default(field: str, value: float) -> None:
    """Write one default of the calibration."""
    path = ROOT / "cost" / "calibration.py"
    text, count = re.subn(rf"(    {field}: float = )[^\n]+", rf"\g<1>{value:.4g}", path.read_text(encoding="utf-8"))
    if count != 1:
        raise KeyError(field)
    path.write_text(text, encoding="utf-8")


def _cannot(gpu: str, field: str) -> bool:
    return (gpu in NO_FP8 and field.startswith("fp")) or (gpu.startswith(NO_FP4) and field.startswith("fp4"))


def main() -> None:
    for key, value in json.loads(Path(sys.argv[1]).read_text()).items():
        owner, field = key.split(" ")
        kind, _, name = owner.partition(":")
        if kind == "all":
            set_default(field, value)
        elif not (kind == "gpu" and _cannot(name, field)):
            entry = HEADS.get(name, name)
            set_figure(find_entry(f"{kind}s", entry), entry, field, value)


if __name__ == "__main__":
    main()
