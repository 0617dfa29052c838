"""Write the reference pages from the code: commands, fields of a spec, results, metrics, profiles, catalog, Python."""

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import charllm
from charllm.catalog.tables import KINDS, entries
from charllm.cli import CLOSED_PIPE, FAILED, GROUPS, INTERRUPTED
from charllm.cli.parser import build_parser
from charllm.cli.spec_flags import add_spec_flags
from charllm.errors import DoesNotFit, SpecError
from charllm.measure.failure import CODES
from charllm.result.columns import TABLES as RESULT_TABLES
from charllm.result.metric import Metric
from charllm.result.metrics import METRICS, PLAN_METRICS
from charllm.spec.cooling import Cooling
from charllm.spec.fields import rules
from charllm.spec.framework import Framework
from charllm.spec.hardware import Cluster, Fabric, Gpu, Node, OtherNodes
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import Conditions
from charllm.spec.training import Training

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
RESULT_KEYS = {
    "origin": "`simulated`, `emulated` or `measured`.",
    "schema_version": "Version of this list of keys.",
    "spec": "The complete run, defaults included: see [the spec](spec.md). A measured run has what its job wrote.",
    "metrics": "The figures of one step: see [metrics](metrics.md).",
    "gpus": "A row for each GPU; see below.",
    "nodes": "A row for each node; see below.",
    "provenance": "Sources of the figures behind the result; see below.",
    "warnings": "Warnings, and the reason why a metric is null.",
}
ROW_KEYS = {
    "rank": "Rank on this GPU.",
    "node": "Number of the node.",
    "slot": "Slot of the GPU in its node, as the driver numbers it.",
    "stage": "Pipeline stage of the rank.",
    "memory_need_bytes": "Memory that the rank must have.",
    "memory_peak_bytes": "Device memory of the rank.",
    "power_mean_w": "Mean power over a step: of the board for a GPU, of the whole node for a node.",
    "power_peak_w": "Largest 1 ms mean of this GPU.",
    "power_peak_sensor_w": "Largest 25 ms mean of this GPU, as its sensor shows.",
    "temperature_mean_c": "Mean temperature over a step; for a node, over its GPUs.",
    "temperature_peak_c": "Highest temperature in a step.",
    "memory_temperature_mean_c": "Mean temperature of the GPU's memory over a step.",
    "memory_temperature_peak_c": "Highest temperature of the GPU's memory in a step.",
    "clock_mean_hz": "Mean clock over a step.",
    "wait_for_group_s": "Time that the GPU waits for slower members of its groups.",
    "gpu_power_mean_w": "Mean power of the node's GPUs.",
    "temperature_spread_k": "Hottest minus coolest GPU of the node.",
    "rack": "Number of the node's rack.",
    "inlet_mean_c": "Mean temperature of the air or water that enters the node.",
    "flow_fraction": "Flow of air or water over that at which resistances are stated.",
    "fan_power_w": "Mean power of the node's fans.",
    "preheat_k": "Largest preheating of a GPU's air by upstream GPUs (assumed).",
}
"""Meaning of the columns of `gpus` and `nodes` that a simulated run has."""
PROVENANCE_KEYS = {
    "charllm": "Version of charllm.",
    "python": "Version of Python.",
    "catalog": "Fingerprint of the catalog: equal if every figure in it is equal.",
    "seed": "Random seed.",
    "figures": "Names of the catalog figures that the run uses, by standing (measured, assumed ...).",
}
EXIT_CODES = {
    0: "done",
    FAILED: "something failed: a full disk, a case of a study, a check of `preflight`, a part of `smoke`",
    SpecError.exit_code: "the request is wrong, or needs a package that is not installed; the message names the "
    "field, the value found and the values expected, or the package",
    DoesNotFit.exit_code: "the run does not fit in memory; the message names the rank, the largest part and a fix",
    INTERRUPTED: "interrupted (Ctrl-C)",
    CLOSED_PIPE: "the output was closed before all of it was written",
}


def index_page() -> str:
    """List the pages of the reference."""
    lines = ["# Reference", "", "These pages are generated from the code when the documentation is built.", ""]
    lines += [f"- [{title}]({name}.md): {about}" for name, (title, about, _) in PAGES.items() if name != "index"]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """List every command with its flags and examples, and the exit codes."""
    parts = ["# Commands", "", "`charllm COMMAND --help` prints the same. Data goes to stdout, messages to stderr."]
    parts += ["", "## Exit codes", "", *_table(("code", "meaning"), ((f"`{c}`", m) for c, m in EXIT_CODES.items()))]
    failures = ", ".join(f"{code} for `{kind}`" for kind, code in sorted(CODES.items()))
    parts += ["", f"`charllm measure` returns the exit code of the measured command; {failures}."]
    parts += ["", "## Flags that describe a run", "", "Commands that take a run share these flags."]
    parts += _flags(_run_flags())
    for group, commands in GROUPS.items():
        parts += ["", f"## {group}"]
        for name in commands:
            parts += ["", f"### charllm {name}", *_command(name)]
    return "\n".join(parts) + "\n"


def _command(name: str) -> list[str]:
    parser = build_parser(name)
    parts = ["", "```text", str(parser.usage), "```", "", _paragraphs(parser.description or "")]
    shared = {flag for action in _run_flags()._actions for flag in action.option_strings} - {"-h", "--help"}
    if shared <= {flag for action in parser._actions for flag in action.option_strings}:
        parts += ["", "It accepts the [flags that describe a run](#flags-that-describe-a-run)."]
    parts += _flags(parser, shared)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for kind, own in action.choices.items():
                parts += [
                    "",
                    f"#### charllm {name} {kind}",
                    "",
                    _paragraphs(own.description or ""),
                    *_flags(own, shared),
                ]
    examples = (parser.epilog or "").split("\n")[1:]
    return [*parts, "", "```sh", textwrap.dedent("\n".join(examples)), "```"]


def _run_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add_spec_flags(parser)
    return parser


def _flags(parser: argparse.ArgumentParser, leave_out: Iterable[str] = ()) -> list[str]:
    """Return the flags of a parser as a table, those of the run left out where they were listed before."""
    left_out = {*leave_out, "-h"}
    rows = [
        (f"`{_spelling(action)}`", (action.help or "").replace("%%", "%"))
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
        and not left_out & set(action.option_strings)
        and not (leave_out and action.dest == "spec")
    ]
    return ["", *_table(("flag", "meaning"), rows)] if rows else []


def _spelling(action: argparse.Action) -> str:
    shown = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        return str(shown)
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {shown}"


def spec_page() -> str:
    """List every field of every table of a spec."""
    parts = ["# Spec", "", "Every field, as it stands in a TOML file or after `--set`."]
    for name, settings in TABLES.items():
        parts += ["", f"## {name}", "", settings.__doc__ or "", ""]
        parts += _table(
            ("field", "meaning", "expected"),
            ((f"`{field}`", rule.doc, rule.possible()) for field, rule in rules(settings).items()),
        )
    return "\n".join(parts) + "\n"


def metrics_page() -> str:
    """List every metric of a result, and those that plans derive from them."""
    about = "`charllm simulate --json` prints these under `metrics`. They describe one step at thermal steady state."
    parts = ["# Metrics", "", about, "", *_metrics(METRICS)]
    parts += ["", "## Of a plan", "", "`charllm plan` derives these from them; `--limit` takes both.", ""]
    derived = {name: one for name, one in PLAN_METRICS.items() if name not in METRICS}
    return "\n".join([*parts, *_metrics(derived)]) + "\n"


def _metrics(metrics: Mapping[str, Metric]) -> list[str]:
    rows = (
        (f"`{name}`", one.label, one.meaning, ", ".join(f"`{key}`" for key in one.keys or ()), one.better)
        for name, one in metrics.items()
    )
    return _table(("metric", "name", "meaning", "keys", "better"), rows)


def result_page() -> str:
    """List what a stored run holds: the keys of result.json, the columns of its rows, its tables."""
    result = charllm.simulate(model="gpt2", cluster="h200x8", tp=2)
    parts = [
        "# A stored run",
        "",
        "`--out DIR` stores a run as a folder: `result.json`, and one parquet file for each larger table.",
    ]
    parts += ["`charllm.load(DIR)` reads it back.", "", "## result.json", ""]
    parts += _table(("key", "content"), ((f"`{key}`", RESULT_KEYS[key]) for key in result.as_table()))
    for key, row in (("gpus", result.gpus[0]), ("nodes", result.nodes[0])):
        parts += ["", f"## {key}", "", *_table(("column", "meaning"), ((f"`{n}`", _row_key(n)) for n in row))]
    parts += ["", "## provenance", ""]
    parts += _table(("key", "content"), ((f"`{n}`", PROVENANCE_KEYS[n]) for n in result.provenance))
    parts += ["", "## Tables", "", "A value that is missing is null in a table."]
    for name, told in RESULT_TABLES.items():
        columns = ", ".join(f"`{column}`" for column in result.table(name) or ())
        parts += ["", f"**{name}**: {told}" + (f" Columns: {columns}." if columns else "")]
    return "\n".join(parts) + "\n"


def _row_key(name: str) -> str:
    """Return the meaning of a column of `gpus` or `nodes`; those by cause of throttling follow one rule."""
    cause = re.fullmatch(r"(throttled|clock_loss)_(\w+)_fraction", name)
    if not cause:
        return ROW_KEYS[name]
    what = (
        "Share of time with throttling"
        if cause[1] == "throttled"
        else "Mean clock loss relative to the requested clock"
    )
    return f"{what}, by cause: {cause[2]}."


def profiles_page() -> str:
    """List what each software profile sets."""
    parts = ["# Software profiles", "", "`--framework NAME` chooses one. Where a profile sets nothing, the default of"]
    parts += ["[the field](spec.md#framework) applies. `charllm catalog frameworks NAME` shows the sources."]
    for name, entry in entries("frameworks").items():
        shown = ((f"`{key}`", f"`{value}`") for key, value in entry.values.items() if key != "name")
        parts += ["", f"## {name}", "", *_table(("field", "value"), shown)]
    return "\n".join(parts) + "\n"


def catalog_page() -> str:
    """List the names of every kind of entry."""
    parts = ["# Catalog", "", "`charllm catalog KIND NAME` shows an entry with the source of each figure."]
    for kind in KINDS:
        parts += ["", f"## {kind}", "", ", ".join(f"`{name}`" for name in entries(kind))]
    return "\n".join(parts) + "\n"


def python_page() -> str:
    """List every name of the Python API."""
    parts = ["# Python", "", charllm.__doc__ or ""]
    for name in charllm.__all__:
        entry = getattr(charllm, name)
        shown = f"{name}{inspect.signature(entry)}" if inspect.isfunction(entry) else name
        parts += ["", f"## {name}", "", "```text", textwrap.fill(shown, 100), "```", "", inspect.getdoc(entry) or ""]
    return "\n".join(parts) + "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return lines + [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


PAGES: dict[str, tuple[str, str, Callable[[], str]]] = {
    "index": ("Reference", "", index_page),
    "commands": ("Commands", "every command with its flags and examples; exit codes", commands_page),
    "spec": ("Spec", "every field of a run, with its bounds", spec_page),
    "metrics": ("Metrics", "every figure of a result", metrics_page),
    "result": ("A stored run", "keys of result.json, rows of GPUs and nodes, tables", result_page),
    "profiles": ("Software profiles", "what each framework sets", profiles_page),
    "catalog": ("Catalog", "every GPU, node, fabric, cluster, model, framework and study by name", catalog_page),
    "python": ("Python", "every function and class of `import charllm`", python_page),
}
"""Page: its title, what it lists, the function that writes it."""


def pages() -> dict[str, str]:
    """Return every page of the reference by name."""
    return {name: write() for name, (_, _, write) in PAGES.items()}
