"""A small machine as files in the kernel's formats: what a test changes in them is what the machine does."""

from pathlib import Path

from charllm.measure.host.source import Roots

STAT = """cpu  1000 100 400 8000 500 0 0 0 0 0
cpu0 500 50 200 4000 250 0 0 0 0 0
cpu1 500 50 200 4000 250 0 0 0 0 0
intr 114930548 113199788 3 0 5 263
ctxt 1990473
procs_running 3
"""
MEMINFO = """MemTotal:       264048092 kB
MemFree:        12000000 kB
MemAvailable:   164048092 kB
SwapTotal:       2097152 kB
SwapFree:        2096128 kB
"""
DISKSTATS = """   7       0 loop0 11 0 22 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 47114 4 4643973 21650 1078320 43950 39451633 1011053 0 222766 1032546 0 0 0 0 0 0
 259       1 nvme0n1p1 1140 0 9370 16 1 0 1 0 0 16 16 0 0 0 0 0 0
"""
PRESSURE = "some avg10=0.10 avg60=2.00 avg300=3.85 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def write(path: Path, text: object) -> None:
    """Write a file of the kernel, in place, as the kernel does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n" if not str(text).endswith("\n") else str(text))


def build(folder: Path) -> Roots:
    """Make a node: two processors, one NUMA node, two InfiniBand ports, an Ethernet interface, a disk, sensors."""
    roots = Roots(folder / "sys", folder / "proc", folder / "dev")
    for package in (0, 1):
        add_rapl(roots, f"intel-rapl:{package}", f"package-{package}", 1_000_000)
        add_rapl(roots, f"intel-rapl:{package}:0", "core", 1_000)
        add_rapl(roots, f"intel-rapl:{package}:1", "dram", 500_000)
    add_rapl(roots, "intel-rapl-mmio:0", "package-0", 1_000_000)
    write(roots.proc / "stat", STAT)
    write(roots.proc / "loadavg", "1.20 0.80 0.50 3/810 11206")
    write(roots.proc / "cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor")
    write(roots.proc / "meminfo", MEMINFO)
    write(roots.proc / "diskstats", DISKSTATS)
    for name in ("cpu", "memory", "io"):
        write(roots.proc / "pressure" / name, PRESSURE.format(total=2_500_000))
    for cpu in range(2):
        write(
            roots.sys / "devices" / "system" / "cpu" / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq", 2_400_000 + cpu * 2
        )
    node = roots.sys / "devices" / "system" / "node" / "node0"
    write(node / "meminfo", "Node 0 MemTotal:       264048092 kB\nNode 0 MemFree:        200000000 kB")
    write(node / "numastat", "numa_hit 100\nnuma_miss 0\nnuma_foreign 12\ninterleave_hit 1")
    for port in ("mlx5_0", "mlx5_1"):
        add_port(roots, port)
    interface = roots.sys / "class" / "net" / "eth0"
    add_interface(interface, "1", 25_000)
    add_interface(roots.sys / "class" / "net" / "ib0", "32", 400_000)
    write(roots.sys / "class" / "net" / "lo" / "statistics" / "tx_bytes", 5)
    write(roots.sys / "block" / "nvme0n1" / "device" / "model", "disk")
    write(roots.sys / "block" / "loop0" / "size", 0)
    add_sensors(roots)
    return roots


def add_rapl(roots: Roots, zone: str, name: str, energy_uj: int) -> None:
    folder = roots.sys / "class" / "powercap" / zone
    write(folder / "name", name)
    write(folder / "energy_uj", energy_uj)
    write(folder / "max_energy_range_uj", 262_143_328_850)


def add_port(roots: Roots, device: str, rate: str = "200 Gb/sec (4X HDR)", state: str = "4: ACTIVE") -> Path:
    port = roots.sys / "class" / "infiniband" / device / "ports" / "1"
    write(port / "rate", rate)
    write(port / "state", state)
    write(port / "link_layer", "InfiniBand")
    for name, value in {"port_xmit_data": 1000, "port_rcv_data": 3000, "link_downed": 1, "symbol_error": 2}.items():
        write(port / "counters" / name, value)
    write(port / "hw_counters" / "packet_seq_err", 4)
    write(port / "hw_counters" / "out_of_sequence", 3)
    return port


def add_interface(folder: Path, kind: str, megabits: int) -> None:
    write(folder / "device" / "vendor", "0x15b3")
    write(folder / "type", kind)
    write(folder / "operstate", "up")
    write(folder / "speed", megabits)
    for name, value in {"tx_bytes": 7000, "rx_bytes": 9000, "tx_dropped": 0, "rx_dropped": 1}.items():
        write(folder / "statistics" / name, value)


def add_sensors(roots: Roots) -> None:
    hwmon = roots.sys / "class" / "hwmon"
    files = {
        "hwmon0": {"name": "coretemp", "temp1_input": 61000, "temp1_label": "Package id 0", "temp2_input": 58000,
                   "temp2_label": "Core 0"},
        "hwmon1": {"name": "nct6798", "fan1_input": 5400, "fan1_label": "SYS FAN 1", "temp1_input": 24500,
                   "temp1_label": "Inlet Temp"},
        "hwmon2": {"name": "power_meter", "power1_average": 5_200_000_000},
        "hwmon3": {"name": "amdgpu", "fan1_input": 3000, "temp1_input": 70000, "temp1_label": "inlet"},
        "hwmon4": {"name": "power_meter", "power1_average": 900_000_000, "power1_oem_info": "CPU Power Socket 0"},
    }  # fmt: skip
    for driver, table in files.items():
        for name, value in table.items():
            write(hwmon / driver / name, value)
