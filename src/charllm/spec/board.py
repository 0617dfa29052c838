"""What a GPU's board draws, how its clock is held, and how it warms up: the constants of gpu/.

Energies are those at the reference voltage; what no figure is known for is scaled from an H200 and named assumed.
"""

from dataclasses import dataclass

from charllm.spec.fields import check_fields, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Constants of gpu/board.py, where the equation stands."""

    idle_w: float = number("Drawn without a context, at the reference temperature.", 0, 5e3)
    static_w: float = number("Drawn with a context, whatever the clock.", 0, 5e3)
    context_w: float = number("Drawn on top of it by an idle context at the highest clock.", 0, 5e3)
    active_w: float = number("Drawn on top while kernels follow each other.", 0, 5e3)
    leakage_w_per_k: float = number("Further power for each degree above the reference temperature.", 0, 20)
    reference_c: float = number("Temperature at which the other figures hold.", -20, 120, 41.0)
    voltage_slope_per_hz: float = number("Relative voltage gained with the clock.", 0, 1e-8)
    voltage_reference_hz: float = number("Clock at which voltage is 1.", 1e8, 1e10)
    voltage_floor_fraction: float = number("Lowest voltage, over that at the reference clock.", 0.3, 1.5)
    flop_j: float = number("Energy of one 16-bit matrix operation.", 0, 1e-10)
    fp8_flop_j: float = number("The same in 8 bits.", 0, 1e-10)
    fp4_flop_j: float = number("The same in 4 bits.", 0, 1e-10)
    softmax_flop_fraction: float = number("Further energy of attention forward, over that of its GEMMs.", 0, 3)
    softmax_backward_flop_fraction: float = number("The same backward.", 0, 3)
    instruction_j: float = number("Energy of one elementwise instruction of one thread.", 0, 1e-9)
    cache_byte_j: float = number("Energy of moving a byte on the die, at the core's voltage.", 0, 1e-9)
    memory_byte_j: float = number("Energy of a byte to or from memory, at memory's own voltage.", 0, 1e-9)
    link_byte_j: float = number("Energy of a byte sent over the scale-up link.", 0, 1e-9)
    energy_fraction: float = number("Energy of work over what the other figures give; fitted.", 0.3, 3, 1.0)
    polling_w: float = number("Drawn on top by polling on every multiprocessor, at the highest clock.", 0, 5e3)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Constants of gpu/kernels.py, where the equations stand: how fast single kernels run at a clock."""

    rate_fraction: float = number("Rate of GEMMs and attention over what the other figures give; fitted.", 0.3, 2, 1.0)
    matrix_fraction: float = number("Rate of deep GEMMs over the peak of the matrix units at the clock.", 0.1, 1, 0.9)
    fp8_fraction: float = number("The same in 8 bits.", 0.1, 1, 0.865)
    fp4_fraction: float = number("The same in 4 bits.", 0.1, 1, 0.8)
    grouped_fraction: float = number("Rate of a grouped GEMM over a plain one.", 0.1, 1, 0.9635)
    grouped_ramp: float = number("Depth that starting and storing a tile of a grouped GEMM costs.", 0, 1e4, 286.0)
    grouped_s: float = number("Time to prepare a grouped GEMM.", 0, 1e-3, 11e-6)
    grouped_roof_power: float = number("How sharply its arithmetic and memory limits meet.", 1, 20, 9.5)
    grouped_memory_fraction: float = number("Memory bandwidth it reaches, over that of copies.", 0.1, 1, 0.76)
    ramp: float = number("Depth at which a GEMM's tiles spend as long starting as multiplying.", 0, 1e4, 115.0)
    gap_s: float = number("Time between two kernels.", 0, 1e-3, 4.1e-6)
    queued_gap_s: float = number("The same between GEMMs whose launches are queued.", 0, 1e-3, 2.3e-6)
    stream_gap_s: float = number("The same before and after memory-bound kernels.", 0, 1e-3, 4.0e-6)
    roof_power: float = number("How sharply arithmetic and memory limits meet.", 1, 10, 2.45)
    wave_fraction: float = number("What of a last, partial wave of tiles is lost.", 0, 1, 0.49)
    fill_fraction: float = number("Rate gained where only some multiprocessors are busy, at most.", 0, 1, 0.36)
    padding_fraction: float = number("Energy of padding in tiles over that of values.", 0, 1, 0.34)
    reread_factor: float = number("Multiplier on tile re-read traffic.", 0, 10, 1.54)
    split_s: float = number("Time to add up a GEMM that is split in depth.", 0, 1e-3, 1.7e-6)
    memory_fraction: float = number("Share of the memory's peak bandwidth that copies reach.", 0.1, 1, 0.9)
    cache_fraction: float = number("Bandwidth gained by memory-bound kernels that stay in cache.", 0, 5, 1.5)
    attention_fraction: float = number("Rate of long attention over matrix units at the clock.", 0.05, 1, 0.6645)
    attention_backward_fraction: float = number("The same backward.", 0.05, 1, 0.606)
    flash2_fraction: float = number("Rate of FlashAttention-2 over the GPU's best attention kernel.", 0.05, 1, 1.0)
    flash2_backward_fraction: float = number("The same backward.", 0.05, 1, 1.0)
    attention_widest: float = number("Head width from which attention's rate grows no more.", 64, 1024, 256.0)
    attention_ramp: float = number("Length at which attention runs at half its rate.", 0, 1e5, 430.0)
    attention_backward_ramp: float = number("The same backward.", 0, 1e5, 887.0)
    tile_ramp: float = number("Blocks of 128 queries at which attention runs at half its rate.", 0, 1e5, 166.0)
    softmax_ramp: float = number("Length at which attention takes twice its energy.", 0, 1e5, 220.0)
    launch_s: float = number("Host time to launch a GEMM in eager PyTorch.", 0, 1e-2, 13.4e-6)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """Constants of gpu/governor.py, where the rules stand."""

    hold_fraction: float = number("What the mean over a second is held at, over the cap.", 0.5, 1.2, 0.987)
    mean_s: float = number("Length of that mean.", 0.01, 60, 1.0)
    burst_fraction: float = number("What a burst is held at until that mean catches up, over the cap.", 0.5, 2, 1.04)
    tick_s: float = number("Time between two looks at power, each at the mean of the last two.", 1e-3, 1, 0.025)
    climb_fraction: float = number("Share of the way back up that the clock climbs in one tick.", 0.01, 1, 0.4)
    burst_clock_fraction: float = number("Highest clock of full matrix units, over the highest.", 0.1, 1, 1.0)
    thermal_step_fraction: float = number("Clock given up for each degree above the operating limit.", 0, 1, 0.02)
    slowdown_fraction: float = number("Clock left above the slowdown threshold.", 0.05, 1, 0.5)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Constants of gpu/heat.py, where the equation stands."""

    die_resistance_k_per_w: float = number("From die to base, the part that follows at once.", 0, 2)
    die_time_s: float = number("Its time constant.", 1e-3, 100)
    base_resistance_k_per_w: float = number("From base to sink.", 0, 2)
    base_time_s: float = number("Its time constant.", 1e-3, 1e4)
    sink_resistance_k_per_w: float = number("From the sink, a package's own, to the air or coolant.", 1e-4, 2)
    sink_time_s: float = number("Its time constant.", 0.1, 1e5)
    memory_byte_heat_j: float = number("Heat of a byte of memory traffic that never reaches the die.", 0, 1e-9)
    memory_board_resistance_k_per_w: float = number("Warming of memory by the board's power.", 0, 5)
    memory_resistance_k_per_w: float = number("Warming of memory by the heat of its own traffic.", 0, 5)

    def __post_init__(self) -> None:
        check_fields(self)
