"""What other tools write, made up here: two GPUs that rest, work and rest, a reading a second."""

import math
from collections.abc import Iterator

REST_W, WORK_W = 80.0, 600.0
SECONDS, FROM_S, TO_S = 120, 20, 100
GPUS = 2
UUIDS = ("GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0001")
START_S = 1_714_564_800
"""2024-05-01 12:00:00 UTC."""


def power_w(second: int, gpu: int) -> float:
    return (WORK_W + 10 * gpu if FROM_S <= second < TO_S else REST_W) + 2 * math.sin(second)


def temperature_c(second: int, gpu: int) -> int:
    return round(30 + 5 * gpu + (power_w(second, gpu) - REST_W) / 20)


def moments() -> Iterator[tuple[int, int]]:
    for second in range(SECONDS):
        for gpu in range(GPUS):
            yield second, gpu


def clock(second: int) -> str:
    return f"{12 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def nvidia_smi(*, units: bool = True, name: str = "NVIDIA H100 80GB HBM3") -> str:
    """A log of ``nvidia-smi --query-gpu=... --format=csv -l 1``."""
    lines = [
        "timestamp, name, index, uuid, power.draw [W], temperature.gpu, clocks.current.sm [MHz], utilization.gpu [%], "
        "memory.used [MiB], clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_slowdown, fan.speed [%]"
    ]
    for second, gpu in moments():
        working = FROM_S <= second < TO_S
        watts, hertz, used, memory = (
            (f"{power_w(second, gpu):.2f} W", "1980 MHz", f"{99 if working else 0} %", "4096 MiB")
            if units
            else (f"{power_w(second, gpu):.2f}", "1980", f"{99 if working else 0}", "4096")
        )
        lines.append(
            f"2024/05/01 {clock(second)}.000, {name}, {gpu}, {UUIDS[gpu]}, {watts}, {temperature_c(second, gpu)}, "
            f"{hertz}, {used}, {memory}, {'Active' if working else 'Not Active'}, Not Active, [N/A]"
        )
    return "\n".join(lines) + "\n"


def smi_dmon(*, dated: bool = True) -> str:
    """``nvidia-smi dmon -o DT``."""
    date, unit = ("#Date       Time        ", "#YYYYMMDD   HH:MM:SS    ") if dated else ("# ", "# ")
    lines = []
    for second, gpu in moments():
        if second % 30 == 0 and gpu == 0:
            lines += [
                f"{date}gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk",
                f"{unit}Idx      W      C      C      %      %    MHz    MHz",
            ]
        stamp = f" 20240501   {clock(second)}    " if dated else ""
        lines.append(
            f"{stamp}  {gpu}    {power_w(second, gpu):.0f}     {temperature_c(second, gpu)}"
            "      -      9      1   2619   1980"
        )
    return "\n".join(lines) + "\n"


def dcgm_dmon() -> str:
    """``dcgmi dmon -e 155,150,100,1002``."""
    lines = []
    for second, gpu in moments():
        if second % 20 == 0 and gpu == 0:
            lines += ["#Entity   POWER     TMPTR   SMCLK   SMACT", "ID        W         C               "]
        lines.append(
            f"GPU {gpu}     {power_w(second, gpu):.3f}   {temperature_c(second, gpu)}      1980    "
            f"{'N/A' if second == 3 else '0.500'}"
        )
    return "\n".join(lines) + "\n"


def scrapes(seconds: range = range(SECONDS), *, timed: bool = True) -> str:
    """Scrapes of dcgm-exporter one after another, each under a line with its time."""
    lines = []
    for second in seconds:
        if timed:
            lines.append(f"# scraped at 2024-05-01T{clock(second)}Z")
        for name, help_text, value in (
            ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", power_w),
            ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", temperature_c),
        ):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels(gpu)}}} {value(second, gpu)}" for gpu in range(GPUS)]
        lines += [f"DCGM_FI_DEV_MEMORY_TEMP{{{_labels(gpu)}}} 9223372036854775794" for gpu in range(GPUS)]
    return "\n".join(lines) + "\n"


def _labels(gpu: int, node: str = "node-a") -> str:
    return f'gpu="{gpu}",UUID="{UUIDS[gpu]}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node}"'


def query_range(metric: str, value: object, nodes: tuple[str, ...] = ("node-a",)) -> dict[str, object]:
    """An answer of Prometheus for one metric."""
    assert callable(value)
    result = [
        {
            "metric": {
                "__name__": metric,
                "gpu": str(gpu),
                "UUID": f"{UUIDS[gpu]}-{node}",
                "Hostname": node,
                "modelName": "NVIDIA A100-SXM4-80GB",
                "job": "dcgm",
            },
            "values": [[START_S + second, str(value(second, gpu))] for second in range(SECONDS)],
        }
        for node in nodes
        for gpu in range(GPUS)
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def tsdb_dump() -> str:
    """Lines of ``promtool tsdb dump``."""
    return "".join(
        f'{{__name__="DCGM_FI_DEV_POWER_USAGE", Hostname="node-a", UUID="{UUIDS[gpu]}", gpu="{gpu}"}} '
        f"{power_w(second, gpu)} {(START_S + second) * 1000}\n"
        for gpu in range(GPUS)
        for second in range(SECONDS)
    )


def amd_smi() -> str:
    """``amd-smi metric --csv -w 1``."""
    lines = ["timestamp,gpu,socket_power,gfx_0_clk,hotspot,gfx_activity,used_vram"]
    lines += [
        f"{START_S + second},{gpu},{power_w(second, gpu):.0f},2100,{temperature_c(second, gpu)},97,1024"
        for second, gpu in moments()
    ]
    return "\n".join(lines) + "\n"


def wide() -> str:
    """A table with a column for each GPU."""
    lines = ["t_s,p0_W,p1_W,gpu0_temp,gpu1_temp,u0,u1"]
    for second in range(SECONDS):
        cells = [f"{power_w(second, gpu):.2f}" for gpu in range(GPUS)] + [
            str(temperature_c(second, gpu)) for gpu in range(GPUS)
        ]
        lines.append(",".join([f"{second}.0", *cells, "98", "97"]))
    return "\n".join(lines) + "\n"


def megatron_log(steps: int = 40, each_s: float = 2.0, from_s: int = FROM_S) -> str:
    """Iterations as Megatron-LM prints them."""
    lines = []
    for step in range(1, steps + 1):
        end_s = from_s + round(step * each_s)
        lines.append(
            f" [2024-05-01 {clock(end_s)}] iteration {step:8d}/     500 | consumed samples: {step * 128:12d} "
            f"| elapsed time per iteration (ms): {each_s * 1000:.1f} | throughput per GPU (TFLOP/s/GPU): 400.0 "
            f"| learning rate: 1.0E-04 | global batch size:   128 | lm loss: {9 - step / 20:.6E} | loss scale: 1.0 "
            "| grad norm: 1.000 |\n"
        )
    return "".join(lines)


def smi_query() -> str:
    """A log of ``nvidia-smi -q -l 1``."""
    lines = []
    for second in range(SECONDS):
        lines += ["", "==============NVSMI LOG==============", ""]
        lines += [f"Timestamp                                 : Wed May  1 {clock(second)} 2024", "Attached GPUs : 2"]
        for gpu in range(GPUS):
            capped = "Active" if FROM_S <= second < TO_S else "Not Active"
            lines += [
                f"GPU 00000000:{gpu + 1:02d}:00.0",
                "    Product Name                          : NVIDIA H100 80GB HBM3",
                f"    GPU UUID                              : {UUIDS[gpu]}",
                "    FB Memory Usage",
                "        Used                              : 4096 MiB",
                "    Clocks Event Reasons",
                f"        SW Power Cap                      : {capped}",
                "    Temperature",
                f"        GPU Current Temp                  : {temperature_c(second, gpu)} C",
                "    GPU Power Readings",
                f"        Power Draw                        : {power_w(second, gpu):.2f} W",
                "    Clocks",
                "        SM                                : 1980 MHz",
            ]
    return "\n".join(lines) + "\n"


def smi_boxes(*, timed: bool = True) -> str:
    """A log of ``nvidia-smi -l 1``: boxes, one after another."""
    lines = []
    for second in range(SECONDS):
        lines += [f"Wed May  1 {clock(second)} 2024"] if timed else []
        lines += ["| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |"]
        for gpu in range(GPUS):
            lines += [
                f"|   {gpu}  NVIDIA H100 80GB HBM3          On | 00000000:{gpu + 1:02d}:00.0 Off |               0 |",
                f"| N/A   {temperature_c(second, gpu)}C    P0             {power_w(second, gpu):.0f}W / 700W |"
                "    4096MiB /  81559MiB |     99%      Default |",
            ]
    return "\n".join(lines) + "\n"


def long_table() -> str:
    """A table whose rows name what they tell."""
    lines = ["timestamp,gpu,metric,value"]
    for second, gpu in moments():
        named = {"power.draw [W]": f"{power_w(second, gpu):.2f}", "temperature.gpu": temperature_c(second, gpu)}
        lines += [
            f"2024-05-01 {clock(second)},{gpu},{name},{value}" for name, value in {**named, "mood": "fine"}.items()
        ]
    return "\n".join(lines) + "\n"
