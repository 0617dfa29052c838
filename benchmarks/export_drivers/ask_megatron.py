"""Megatron-LM's own parse_args, validate_args and configuration, without GPU, TransformerEngine and Apex."""

import contextlib
import io
import json
import os
import sys
import traceback
from typing import Any

from stand_ins import stand_in  # type: ignore[import-not-found]


def check(case: dict[str, Any]) -> str | None:
    """Return why Megatron-LM refuses a case; None where it accepts it."""
    from megatron.training import arguments

    sys.argv = ["pretrain_gpt.py", *case["words"]]
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["environment"], RANK="0", WORLD_SIZE=str(case["world"]))
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            args = arguments.parse_args()
            arguments.validate_args(args)
            arguments.core_transformer_config_from_args(args)
    except SystemExit:
        return said.getvalue()[-200:].strip()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno}: {place.line})"
    return None


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        stand_in()
        found = {case["name"]: check(case) for case in cases}
    json.dump(found, sys.stdout)
