"""A YAML document with OmegaConf references, read without trusting it."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from charllm.errors import SpecError
from charllm.spec.readers.values import MAX_TEXT, shown
from charllm.units import format_bytes

if TYPE_CHECKING:
    import yaml

MAX_DOCUMENT = 2**18
MAX_ALIASES = 10_000
MAX_NODES = 1_000_000
MAX_REFERENCES = 16

_ALIAS = re.compile(r"(?:^|[\s\[{,:-])[&*]\w", re.MULTILINE)
_REFERENCE = re.compile(r"\$\{(?P<dots>\.*)(?P<path>[^${}:.]+(?:\.[^${}:.]+)*)\}")
_MISSING = "???"

Document = Mapping[Any, Any]


def load_document(text: str, path: str) -> Document:
    """Load a YAML mapping, or raise SpecError when it is malformed, too large or refers to itself."""
    import yaml

    if len(text) > MAX_DOCUMENT:
        raise SpecError("--from", path, f"a document of at most {format_bytes(MAX_DOCUMENT)}")
    if len(_ALIAS.findall(text)) > MAX_ALIASES:
        raise SpecError("--from", path, f"at most {MAX_ALIASES:,} anchors and aliases")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _expanded(node, {}) > MAX_NODES:
            raise SpecError("--from", path, f"at most {MAX_NODES:,} values once aliases are followed")
        document = None if node is None else loader.construct_document(node)
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
    return document


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


def raw_value(document: Document, path: str) -> Any:
    """Return what stands at a dotted path as it is written; None when nothing does."""
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def find_value(document: Document, path: str) -> Any:
    """Return what stands at a dotted path, references followed; None when nothing does."""
    asked, value = path, raw_value(document, path)
    for _ in range(MAX_REFERENCES):
        if not isinstance(value, str) or "${" not in value:
            return None if value == _MISSING else value
        match = _REFERENCE.fullmatch(value.strip())
        if match is None:
            possible = "a plain value, or a reference such as ${model.encoder_seq_length}"
            raise SpecError(asked, value[:MAX_TEXT], possible)
        path = _target(path, match["dots"], match["path"])
        value = raw_value(document, path)
        if value is None:
            raise SpecError(asked, shown(match.group()), "a reference to a value of this file")
    raise SpecError(asked, shown(value)[:MAX_TEXT], "a reference that ends in a value")


def _target(path: str, dots: str, relative: str) -> str:
    """Return the path a reference means: with n dots it starts n levels above the key it stands at."""
    parents = path.split(".")[: -len(dots)] if dots else []
    return ".".join([*parents, relative])
