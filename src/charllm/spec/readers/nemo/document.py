"""A YAML document with OmegaConf references and Hydra defaults, read without trusting it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.errors import SpecError
from charllm.spec.readers.ledger import Ledger
from charllm.spec.readers.nemo.references import Source, resolve
from charllm.spec.readers.reading import Setting
from charllm.spec.readers.values import MAX_TEXT, shown
from charllm.spec.request import read_text
from charllm.units import format_bytes

if TYPE_CHECKING:
    import yaml

MAX_DOCUMENT = 2**18
MAX_ALIASES = 10_000
MAX_NODES = 100_000
MAX_BASES = 16
MAX_DEPTH = 32

_ALIAS = re.compile(r"(?:^|[\s\[{,:-])[&*]\w", re.MULTILINE)
_MISSING = "???"


class Document:
    """The settings of a file as nested tables, the line of each, and files that it builds on but that are not there."""

    def __init__(
        self,
        values: Mapping[Any, Any],
        lines: Mapping[str, int],
        missing: tuple[Setting, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.lines, self.missing = lines, missing
        self._source = Source(self._raw, MOUNTS, environment or {})
        whole = Ledger(values)
        # The launcher mounts a file of training/ at `training`, and references say so.
        self.mount = next((key for key in MOUNTS if isinstance(whole.get(key), Ledger) and "model" in whole[key]), "")
        self.table = whole

    @property
    def settings(self) -> Ledger:
        """Settings of the job itself, without what the launcher has beside them."""
        return self.table[self.mount] if self.mount else self.table

    def find(self, path: str) -> Any:
        """Return what stands at a dotted path, references followed; None when nothing does."""
        value = resolve(self._source, f"{self.mount}.{path}" if self.mount else path)
        return None if value == _MISSING else value

    def written(self, path: str) -> Any:
        """Return what stands at a dotted path, as it is written."""
        return self._raw(f"{self.mount}.{path}" if self.mount else path)[1]

    def names(self, path: str) -> bool:
        """Tell whether the file has a setting, with a value or without."""
        return self._raw(f"{self.mount}.{path}" if self.mount else path)[0]

    def _raw(self, path: str) -> tuple[bool, Any]:
        value: Any = self.table
        *above, last = path.split(".")
        for key in above:
            value = value[key] if isinstance(value, Ledger) and key in value else None
        if not isinstance(value, Ledger):
            return False, None
        return value.names(last), value.get(last)


MOUNTS = ("training", "peft", "fine_tuning", "adapter_learning", "prompt_learning")
"""Where the launcher mounts its files."""


def load_document(text: str, path: str, environment: Mapping[str, str] | None = None) -> Document:
    """Load a YAML file over those of its `defaults` list, as Hydra does; what cannot be found is noted."""
    values, lines = _load(text, path)
    listed = values.pop("defaults", None)
    if not isinstance(listed, list) or len(listed) > MAX_BASES:
        return Document(values, lines, (), environment)
    merged: dict[Any, Any] = {}
    missing = []
    for entry in listed if "_self_" in listed else [*listed, "_self_"]:
        name, part = ("", values) if entry == "_self_" else _base(entry, Path(path))
        if part is None and name:
            reason = f"the file it builds on, {name}.yaml, which is not beside it"
            missing.append(Setting("defaults", f"defaults: {name}"[:MAX_TEXT], lines.get("defaults"), reason))
        merged = _merge(merged, part or {})
    return Document(merged, lines, tuple(missing), environment)


def _base(entry: Any, path: Path) -> tuple[str, dict[Any, Any] | None]:
    """Return the name and the values of a file in a `defaults` list; no name when nothing has to be there."""
    group, option = next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else ("", entry)
    group, _, package = str(group).partition("@")
    optional = group.startswith("optional ")
    group = group.removeprefix("optional ").strip("/ ")
    if not isinstance(option, str) or group.startswith(("hydra", "override ")):
        return "", None
    file = path.parent / group / f"{option.removesuffix('.yaml')}.yaml"
    name = f"{group}/{option}" if group else option
    try:
        if ".." in file.parts or not file.is_file():
            return "" if optional else name, None
        values, _ = _load(read_text(file, "--from"), str(file))
    except (OSError, ValueError):
        return name, None
    values.pop("defaults", None)
    mount = group.replace("/", ".") if not package or package == "_here_" else package.strip(".")
    for key in reversed(mount.split(".") if mount and mount != "_global_" else []):
        values = {key: values}
    return name, values


def _merge(under: dict[Any, Any], over: Mapping[Any, Any], depth: int = MAX_DEPTH) -> dict[Any, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict) and depth > 0
        merged[key] = _merge(below, value, depth - 1) if both else value  # type: ignore[arg-type]
    return merged


def _load(text: str, path: str) -> tuple[dict[Any, Any], dict[str, int]]:
    """Load a YAML mapping and the line of each key, or raise SpecError: malformed, too large, refers to itself."""
    import yaml

    if len(text) > MAX_DOCUMENT:
        raise SpecError("--from", path, f"a document of at most {format_bytes(MAX_DOCUMENT)}")
    if len(_ALIAS.findall(text)) > MAX_ALIASES:
        raise SpecError("--from", path, f"at most {MAX_ALIASES:,} anchors and aliases")
    lines: dict[str, int] = {}
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _expanded(node, {}) > MAX_NODES:
            raise SpecError("--from", path, f"at most {MAX_NODES:,} values once aliases are followed")
        document = None if node is None else loader.construct_document(node)
        if node is not None:
            _note_lines(node, "", lines)
    except SpecError:
        raise
    # Tags such as !!bool on the wrong text make the constructors fail in many ways.
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SpecError("--from", path, f"valid YAML ({reason})") from None
    if not isinstance(document, dict):
        raise SpecError("--from", path, "a YAML mapping")
    return document, lines


def _expanded(node: "yaml.Node", sizes: dict[int, int]) -> int:
    """Count the values below a node, aliases followed."""
    known = sizes.get(id(node))
    if known == 0:
        raise ValueError("an alias that contains itself")
    if known is None:
        sizes[id(node)] = 0
        children = node.value if isinstance(node.value, list) else []
        pairs = [child if isinstance(child, tuple) else (child,) for child in children]
        known = 1 + sum(_expanded(child, sizes) for pair in pairs for child in pair)
        sizes[id(node)] = known
    return known


def _note_lines(node: "yaml.Node", above: str, lines: dict[str, int], depth: int = MAX_DEPTH) -> None:
    """Note the line of each key of a mapping, by its dotted path."""
    pairs = [pair for pair in node.value if isinstance(pair, tuple)] if isinstance(node.value, list) else []
    for key, value in pairs:
        path = f"{above}{shown(key.value)}"
        lines.setdefault(path, key.start_mark.line + 1)
        if depth > 0:
            _note_lines(value, f"{path}.", lines, depth - 1)
