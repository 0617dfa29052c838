"""The amdsmi package, or why it cannot be used, and the faults that the amdgpu driver reports as events."""

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
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


FAULTS = ("VMFAULT", "GPU_PRE_RESET")
NO_DATA = 40
"""Status of a question for events when there are none."""


class FaultCount:
    """Faults of all GPUs (memory faults and resets), counted since they were first asked for.

    The library hands out the events of all devices in one call. Without root it shows memory faults of our own
    processes only, and resets of every GPU.
    """

    MOST_AT_ONCE = 10
    """Events taken in one reading; the rest waits for the next."""

    def __init__(self, smi: Any, handles: Sequence[Any]) -> None:
        self._smi, self._handles = smi, handles
        self._readers: dict[int, Any] = {}
        """GPU: what reads events, of all GPUs that have been asked for."""
        self._counts: Counter[int] = Counter()

    def count(self, gpu: int) -> float:
        """Take what the driver has reported since the last call, without waiting, and return how many in all."""
        if gpu not in self._readers:
            kinds = [self._smi.AmdSmiEvtNotificationType[name] for name in FAULTS]
            self._readers[gpu] = self._smi.amdsmi_interface.AmdSmiEventReader(self._handles[gpu], kinds)
        try:
            for event in self._readers[gpu].read(0, self.MOST_AT_ONCE):
                self._counts[event["processor_handle"].value] += 1
        except self._smi.AmdSmiException as error:
            if getattr(error, "err_code", None) != NO_DATA:
                raise
        return float(self._counts[self._handles[gpu].value])
