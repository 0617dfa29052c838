"""Formats that can be converted, and the layouts of their files."""

LOG, AUTO = "log", "auto"
FORMATS: dict[str, tuple[str, ...]] = {
    "dcgm": ("dmon", "prometheus-text", "prometheus-json", "table"),
    "prometheus": ("prometheus-json", "prometheus-text", "table"),
    "nvidia-smi": ("smi-dump", "dmon", "table"),
    "amd-smi": ("aligned", "records", "table", "prometheus-text"),
    "charllm-ppt": ("charllm-ppt",),
    "csv": ("records", "table"),
    "megatron-log": (LOG,),
    "nemo-log": (LOG,),
    "log": (LOG,),
    AUTO: (),
}
"""Format: layouts that its files may have, in the order in which they are tried; of `auto` any."""
LOG_KINDS = {"megatron-log": "megatron", "nemo-log": "nemo"}
"""Format: kind of log; any other is found out."""
