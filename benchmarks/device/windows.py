"""When each configuration of a campaign ran: a line for each, as it ends."""

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def timed(out: Path, take: str, name: str, request: dict[str, Any], play: Callable[[], Any]) -> None:
    """Run one configuration and append its window to the record."""
    start_s = time.monotonic()
    error, told = "", None
    try:
        told = play()
    except (RuntimeError, torch.cuda.OutOfMemoryError) as failure:
        error = str(failure).splitlines()[0]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    end_s = time.monotonic()
    window = {
        "name": name,
        "take": take,
        "start_s": start_s,
        "end_s": end_s,
        "request": request,
        "error": error,
    }
    if isinstance(told, list) and told:
        window["loss_first"], window["loss_last"] = told[0], told[-1]
    with (out / "windows.jsonl").open("a") as file:
        file.write(json.dumps(window) + "\n")
    print(name, round(end_s - start_s, 1), error, window.get("loss_first"), window.get("loss_last"), flush=True)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
