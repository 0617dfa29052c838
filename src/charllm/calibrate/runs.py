"""Tell what each run given to calibration is, and read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.evaluate.heat_trace import MAX_FILE_BYTES, Trace, read_recorded, read_trace
from charllm.evaluate.ops_table import OpRow, read_ops
from charllm.measure.parts import is_on_nodes
from charllm.result.files import HEADER_FILE
from charllm.spec.request import read_bytes

OPS_FILE = "ops.csv"


class OpsTable(NamedTuple):
    """One board's ops."""

    name: str
    rows: list[OpRow]


class NamedTrace(NamedTuple):
    """Power and temperature of the boards of one node over time."""

    name: str
    trace: Trace


def read_runs(paths: Sequence[str]) -> tuple[list[OpsTable], list[NamedTrace]]:
    """Read folders of the op bench, tables of ops, and recordings of power and temperature."""
    tables, traces = [], []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            recorded = (path / HEADER_FILE).is_file() or is_on_nodes(path)
            if not (path / OPS_FILE).is_file() and not recorded:
                made = "as `charllm bench ops`, `measure` and `convert` make"
                raise SpecError("RUN", text, f"a folder with {OPS_FILE} or a recording, {made}")
            if (path / OPS_FILE).is_file():
                tables.append(OpsTable(path.name, read_ops(str(path / OPS_FILE))[0]))
            if recorded:
                traces += [NamedTrace(name, trace) for name, trace in read_recorded(path).items()]
        elif _is_ops_table(path):
            tables.append(OpsTable(path.name, read_ops(text)[0]))
        else:
            traces.append(NamedTrace(path.name, read_trace(text)))
    return tables, traces


def _is_ops_table(path: Path) -> bool:
    header = read_bytes(path, "RUN", MAX_FILE_BYTES).decode(errors="replace").partition("\n")[0]
    return {"kind", "dtype"} <= {name.strip() for name in header.split(",")}
