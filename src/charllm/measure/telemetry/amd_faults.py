"""Faults that the amdgpu driver reports as events: memory faults and resets."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

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
