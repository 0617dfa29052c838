"""Where each setting of a run comes from: a line of a file, a flag, the catalog, the software profile, a default."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from charllm.api.keywords import build_request, changes_of, foreign_file
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.readers import Inputs, Reading, read_foreign
from charllm.spec.readers.json_lines import key_lines as json_lines
from charllm.spec.readers.nemo.document import load_document
from charllm.spec.readers.probe import MOST_SETTINGS, alternatives, probing
from charllm.spec.readers.torchtitan import key_lines as toml_lines
from charllm.spec.readers.values import shown
from charllm.spec.request import Table, dotted_fields, read_text

PARTS = ("model", "parallelism", "training", "framework")
MOST_SOURCES = 2
MOST_READINGS = 1500


def explain_settings(spec: Any, words: Mapping[str, Any]) -> list[Table]:
    """Return a row for each setting of a run: its field, its value and its source."""
    run = resolve_run(build_request(spec, words))
    given = dotted_fields(changes_of(spec, words))
    file = foreign_file(words)
    stated, sources = ({}, {}) if file is None else _trace(*file)
    taken = {text.partition(" ")[0] for text in run.defaults_taken}
    named = {part for part in ("model", "framework") if isinstance(given.get(part), str) or f"{part}.base" in given}
    rows = []
    for part in PARTS:
        settings = getattr(run, part)
        for rule in fields(settings):
            field, value = f"{part}.{rule.name}", getattr(settings, rule.name)
            from_file = part not in named and field in stated
            if field in given:
                source = "your flags or spec"
            elif part not in named and field in sources:
                source = "; ".join(sources[field][:MOST_SOURCES])
            elif from_file:
                source = f"no one line of {Path(file[0]).name if file else ''}: its program's default, or several lines"
            elif rule.name in taken:
                source = f"profile {run.framework.name}"
            elif part == "framework" or (part == "model" and value == rule.default) or rule.name.startswith("stated_"):
                continue
            else:
                source = "default"
                if part == "model":
                    source = "follows from the others" if "model.layers" in stated else f"catalog: {run.model.name}"
            rows.append({"setting": field, "value": _short(value), "from": source})
    return rows


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_short(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _trace(path: str, inputs: Inputs) -> tuple[Table, dict[str, list[str]]]:
    """Return the fields that a file makes, and for each the lines that decide it.

    The file is read again for each of its settings, as if that one said something else.
    """
    with probing() as first:
        reading = read_foreign(path, inputs)
    stated, lines = _fields_of(reading), _lines(path)
    sources: dict[str, list[str]] = {}
    readings = 0
    for name, value in list(first.seen.items())[:MOST_SETTINGS]:
        for other in alternatives(value):
            readings += 1
            if readings > MOST_READINGS:
                return stated, sources
            changed: set[str] = set()
            with probing(name, other), suppress(SpecError):
                found = _fields_of(read_foreign(path, inputs))
                changed = {field for field in {**stated, **found} if stated.get(field) != found.get(field)}
            if changed:
                for field in changed:
                    found_here = sources.setdefault(field, [])
                    text = _source(path, name, value, lines)
                    # A flag may be read under its own name and under that of a setting.
                    if not any(text.partition(": ")[0] == known.partition(": ")[0] for known in found_here):
                        found_here.append(text)
                break
    return stated, {field: _nearest(field, texts) for field, texts in sources.items()}


def _nearest(field: str, texts: list[str]) -> list[str]:
    """List the settings that are called as the field is first: others decide it through what is derived."""
    words = set(field.rpartition(".")[2].split("_"))
    return sorted(texts, key=lambda text: -len(words & set(re.split(r"\W+|_", text.lower()))))


def _fields_of(reading: Reading) -> Table:
    named = {"model.name": reading.model_id} if reading.model_id else {}
    sizes = {"nodes": reading.nodes, "gpus_per_node": reading.gpus_per_node, "microbatches": reading.microbatches}
    batch = {"training.global_batch_size": reading.microbatches} if reading.microbatches else {}
    request = dotted_fields({key: value for key, value in reading.request.items() if key != "notes"})
    if isinstance(reading.request.get("framework"), str):
        request["framework.base"] = request.pop("framework")
    return {**batch, **named, **sizes, **request, **dict.fromkeys(reading.missing)}


def _source(path: str, name: str, value: Any, lines: Mapping[str, int]) -> str:
    line = lines.get(name) or lines.get(_key(name))
    words = value if isinstance(value, list) else [value]
    text = f"{name} {' '.join(shown(word) for word in words)}" if name.startswith("--") else f"{name}: {_short(value)}"
    return f"{Path(path).name}{f' line {line}' if line else ''}: {text.strip()[:80]}"


def _key(name: str) -> str:
    return name.lstrip("-").replace("-", "_").rpartition(".")[2]


_ASSIGNED = re.compile(r"(?:--)?([A-Za-z_][\w-]*)(?=[\"']?\s*[=:\s]|$)")


def _lines(path: str) -> dict[str, int]:
    """Return the line of each setting: by its dotted path where the format has one, and by its last word."""
    path = path.partition("::")[0]
    text = read_text(path, "--from")
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith(("#", "//")):
            for word in _ASSIGNED.findall(line):
                found.setdefault(word.replace("-", "_"), number)
    with suppress(SpecError):
        if path.endswith((".yaml", ".yml")):
            found |= load_document(text, path).lines
        elif path.endswith((".toml", ".json")):
            found |= (toml_lines if path.endswith(".toml") else json_lines)(text)
    return found
