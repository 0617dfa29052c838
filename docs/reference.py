"""Write the reference pages from the code: every field of a spec, every metric, every entry of the catalog."""

import inspect
import textwrap
from pathlib import Path

import charllm
from charllm.catalog.tables import KINDS, entries
from charllm.result.metrics import METRICS
from charllm.spec.fields import rules
from charllm.spec.framework import Framework
from charllm.spec.hardware import Cluster, Cooling, Fabric, Gpu, Node, OtherNodes
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import Conditions
from charllm.spec.training import Training

HERE = Path(__file__).parent / "reference"
TABLES = {
    "model": Model,
    "training": Training,
    "parallelism": Parallelism,
    "cluster": Cluster,
    "cluster.node": Node,
    "cluster.node.gpu": Gpu,
    "cluster.mixed": OtherNodes,
    "cluster.fabric": Fabric,
    "cluster.cooling": Cooling,
    "framework": Framework,
    "conditions": Conditions,
}


def spec_page() -> str:
    """List every field of every table of a spec."""
    parts = ["# Spec", "", "Every field, as it stands in a TOML file or after `--set`."]
    for name, settings in TABLES.items():
        parts += ["", f"## {name}", "", settings.__doc__ or "", "", "| field | meaning | expected |", "|---|---|---|"]
        parts += [f"| `{field}` | {rule.doc} | {rule.possible()} |" for field, rule in rules(settings).items()]
    return "\n".join(parts) + "\n"


def metrics_page() -> str:
    """List every metric of a result."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]
    return "\n".join(["# Metrics", "", "| metric | meaning |", "|---|---|", *rows]) + "\n"


def python_page() -> str:
    """List every name of the Python API."""
    parts = ["# Python", "", charllm.__doc__ or ""]
    for name in charllm.__all__:
        entry = getattr(charllm, name)
        shown = f"{name}{inspect.signature(entry)}" if inspect.isfunction(entry) else name
        parts += ["", f"## {name}", "", "```", textwrap.fill(shown, 120), "```", "", inspect.getdoc(entry) or ""]
    return "\n".join(parts) + "\n"


def catalog_page() -> str:
    """List the names of every kind of entry."""
    parts = ["# Catalog", "", "`charllm catalog KIND NAME` shows an entry with the source of each figure."]
    for kind in KINDS:
        parts += ["", f"## {kind}", "", ", ".join(f"`{name}`" for name in entries(kind))]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the pages."""
    HERE.mkdir(exist_ok=True)
    pages = {"spec": spec_page, "metrics": metrics_page, "catalog": catalog_page, "python": python_page}
    for name, write in pages.items():
        page = write()
        (HERE / f"{name}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
