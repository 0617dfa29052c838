"""Recordings of other tools as runs."""

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from charllm.api.keywords import Spec, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.convert.run import Wish, convert_files
from charllm.result.result import RunResult

LONGEST_PERIOD_S = 86_400.0
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@public
def convert(
    format: str,
    paths: Paths,
    out: str | PathLike[str],
    *,
    log: Paths = (),
    column: Mapping[str, str] | None = None,
    header: Sequence[str] | str = "",
    period: float | None = None,
    gpu: str = "",
    gpus: Sequence[str | int] = (),
    from_: float | None = None,
    to: float | None = None,
    spec: Spec | None = None,
) -> RunResult:
    """Convert a recording of another tool into a run in the folder `out`, as ``charllm convert`` does.

    `format` is dcgm, prometheus, nvidia-smi, amd-smi, megatron-log, nemo-log, log, charllm-ppt, csv or auto. `log`
    adds the steps of a training log. `column` assigns quantities to columns ({"P": "power_mw"}), `header` names the
    columns of a table without a header, `period` is the time between readings without timestamps, `gpu` the type of
    GPU if the files do not name it, `gpus` the GPUs to keep, `from_` and `to` the part to keep in seconds after the
    first reading, and `spec` the run that was trained.

    >>> import charllm, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pathlib.Path(folder, "log.csv")
    ...     rows = [f"{second},0,{300 + second % 7},60" for second in range(30)]
    ...     _ = table.write_text("\\n".join(["t_s,gpu,power_w,temperature_c", *rows]))
    ...     result = charllm.convert("csv", table, f"{folder}/run")
    >>> result.origin, round(result.metrics.power_mean_w)
    ('measured', 303)
    """
    return convert_files(build_wish(format, paths, out, log, column, header, period, gpu, gpus, from_, to, spec))


def build_wish(
    format: str,
    paths: Paths,
    out: str | PathLike[str],
    log: Paths,
    column: Mapping[str, str] | Sequence[str] | None,
    header: Sequence[str] | str,
    period: float | None,
    gpu: str,
    gpus: Sequence[str | int],
    from_: float | None,
    to: float | None,
    spec: Spec | None,
) -> Wish:
    """Check what was asked for."""
    if not isinstance(format, str):
        raise SpecError("FORMAT", format, "the name of a format")
    for flag, value in (("--period", period), ("--from", from_), ("--to", to)):
        _check_seconds(flag, value, least=0.0 if flag != "--period" else 1e-4)
    columns = [f"{name}={quantity}" for name, quantity in column.items()] if isinstance(column, Mapping) else column
    table = None if spec is None else resolve_run(build_request(spec, {})).as_table()
    return Wish(
        format, tuple(_paths(paths, "PATH")), as_path(out, "--out"), tuple(_paths(log, "--log")),
        tuple(columns or ()),
        header if isinstance(header, str) else ",".join(header), period, gpu, tuple(str(one) for one in gpus), from_,
        to, table, os.environ,
    )  # fmt: skip


def _paths(given: Paths, word: str) -> list[Any]:
    several = [given] if isinstance(given, str | PathLike) else list(given)
    if not several and word == "PATH":
        raise SpecError(word, "nothing", "files or folders to convert")
    return [as_path(one, word) for one in several]


def _check_seconds(flag: str, value: Any, least: float) -> None:
    if value is None:
        return
    most = LONGEST_PERIOD_S if flag == "--period" else float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise SpecError(flag, value, f"seconds from {least:g}" + (f" to {most:g}" if flag == "--period" else ""))
