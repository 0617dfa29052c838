"""The amdsmi package, or why it cannot be used."""

import contextlib
import io
from importlib import metadata
from typing import Any

from charllm.measure.telemetry.source import TelemetryError


def load_binding() -> Any:
    """Import the amdsmi package; without its library it prints to stdout and raises KeyError."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            import amdsmi
    except ImportError:
        raise TelemetryError(
            "amdsmi is not installed: pip install /opt/rocm/share/amd_smi (the one of your ROCm), or pip install amdsmi"
        ) from None
    except (KeyError, OSError):
        raise TelemetryError("libamd_smi.so was not found: install amd-smi-lib of ROCm, or set ROCM_PATH") from None
    except AttributeError as error:
        missing = str(error).rpartition(" ")[2]
        raise TelemetryError(
            f"the amdsmi package ({binding_version()}) is newer than libamd_smi.so, which has no {missing}: "
            "pip install /opt/rocm/share/amd_smi"
        ) from None
    return amdsmi


def binding_version() -> str:
    """Return the version of the package."""
    try:
        return metadata.version("amdsmi")
    except metadata.PackageNotFoundError:
        return "unknown"
