"""Plain tables as TOML and as YAML: texts, numbers, switches, lists and tables."""

import json
from collections.abc import Mapping
from typing import Any


def write_toml(table: Mapping[str, Any], above: str = "") -> str:
    """Write a table: its own values first, then the tables in it."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    text = f"[{above}]\n" * bool(above and lines) + "".join(f"{line}\n" for line in lines)
    parts = [
        write_toml(value, f"{above}.{key}" if above else key)
        for key, value in table.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join(part for part in (text, *parts) if part)


def write_yaml(table: Mapping[str, Any], depth: int = 0) -> str:
    """Write a table as YAML."""
    lines = []
    for key, value in table.items():
        indent = "  " * depth
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{write_yaml(value, depth + 1)}")
        else:
            lines.append(f"{indent}{key}: {'null' if value is None else _value(value)}\n")
    return "".join(lines)


def _value(value: Any) -> str:
    """Write a value as JSON does, which TOML and YAML read, too; tables inside a list are TOML's inline tables."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_value(item)}' for key, item in value.items())}}}"
    return json.dumps(value)
