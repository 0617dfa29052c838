"""What a GPU's board draws, how its clock is held, and how it warms up: the constants of gpu/.

Energies are those at the reference voltage; what no figure is known for is scaled from an H200 and named assumed.
"""

from dataclasses import dataclass

from charllm.spec.fields import check_fields, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Constants of gpu/physics.py, where the equation stands."""

    idle_w: float = number("Power without a context, at the reference temperature.", 0, 5e3)
    static_w: float = number("Static power with a context, independent of the clock.", 0, 5e3)
    context_w: float = number("Additional power of an idle context at the highest clock.", 0, 5e3)
    active_w: float = number("Additional power while kernels run.", 0, 5e3)
    leakage_w_per_k: float = number("Additional power for each degree above the reference temperature.", 0, 20)
    reference_c: float = number("Temperature at which the other figures hold.", -20, 120, 41.0)
    voltage_slope_per_hz: float = number("Increase of relative voltage with the clock.", 0, 1e-8)
    voltage_reference_hz: float = number("Clock at which voltage is 1.", 1e8, 1e10)
    voltage_floor_fraction: float = number("Lowest voltage, relative to that at the reference clock.", 0.3, 1.5)
    flop_j: float = number("Energy of one 16-bit matrix operation.", 0, 1e-10)
    fp8_flop_j: float = number("Energy of one 8-bit matrix operation.", 0, 1e-10)
    fp4_flop_j: float = number("Energy of one 4-bit matrix operation.", 0, 1e-10)
    fp32_flop_j: float = number("Energy of one operation of a product in fp32 units.", 0, 1e-9)
    softmax_flop_fraction: float = number("Additional energy of attention forward, relative to its GEMMs.", 0, 3)
    softmax_backward_flop_fraction: float = number(
        "Additional energy of attention backward, relative to its GEMMs.", 0, 3
    )
    instruction_j: float = number("Energy of one elementwise instruction of one thread.", 0, 1e-9)
    cache_byte_j: float = number("Energy of moving a byte on the die, at the core's voltage.", 0, 1e-9)
    memory_byte_j: float = number("Energy of a byte to or from memory, at memory's own voltage.", 0, 1e-9)
    link_byte_j: float = number("Energy of a byte sent over the scale-up link.", 0, 1e-9)
    energy_fraction: float = number("Fitted multiplier on the energy of work.", 0.3, 3, 1.0)
    polling_w: float = number("Additional power of polling on every multiprocessor, at the highest clock.", 0, 5e3)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Constants of gpu/kernels.py, where the equations stand: how fast single kernels run at a clock."""

    rate_fraction: float = number("Fitted multiplier on the rate of GEMMs and attention.", 0.3, 2, 1.0)
    matrix_fraction: float = number(
        "Rate of deep 16-bit GEMMs relative to the peak of the matrix units at the clock.", 0.1, 1, 0.9
    )
    fp8_fraction: float = number("Rate of deep 8-bit GEMMs relative to the peak.", 0.1, 1, 0.865)
    fp4_fraction: float = number("Rate of deep 4-bit GEMMs relative to the peak.", 0.1, 1, 0.8)
    grouped_fraction: float = number("Rate of a grouped GEMM relative to a plain one.", 0.1, 1, 0.9635)
    grouped_ramp: float = number("Start-up and storing cost of a tile of a grouped GEMM, as a depth.", 0, 1e4, 286.0)
    grouped_s: float = number("Time to prepare a grouped GEMM.", 0, 1e-3, 11e-6)
    grouped_roof_power: float = number(
        "Exponent that joins the arithmetic and memory limits of a grouped GEMM.", 1, 20, 9.5
    )
    grouped_memory_fraction: float = number("Memory bandwidth of a grouped GEMM relative to copies.", 0.1, 1, 0.76)
    ramp: float = number("Depth at which a GEMM's tiles spend as long starting as multiplying.", 0, 1e4, 115.0)
    gap_s: float = number("Time between two kernels.", 0, 1e-3, 4.1e-6)
    queued_gap_s: float = number("Time between two GEMMs whose launches are queued.", 0, 1e-3, 2.3e-6)
    stream_gap_s: float = number("Time before and after memory-bound kernels.", 0, 1e-3, 4.0e-6)
    roof_power: float = number("Exponent that joins arithmetic and memory limits.", 1, 10, 2.45)
    wave_fraction: float = number("Share of the last, partial wave of tiles that is lost.", 0, 1, 0.49)
    fill_fraction: float = number("Largest gain in rate per multiprocessor when only some are busy.", 0, 1, 0.36)
    reread_factor: float = number("Multiplier on tile re-read traffic.", 0, 10, 1.54)
    split_s: float = number("Time to add up the parts of a GEMM that is split in depth.", 0, 1e-3, 1.7e-6)
    memory_fraction: float = number("Share of the memory's peak bandwidth that copies reach.", 0.1, 1, 0.9)
    cache_fraction: float = number("Bandwidth gained by memory-bound kernels that stay in cache.", 0, 5, 1.5)
    attention_fraction: float = number(
        "Rate of attention on long sequences relative to the matrix units at the clock.", 0.05, 1, 0.6645
    )
    attention_backward_fraction: float = number(
        "Rate of attention backward on long sequences, relative to the matrix units.", 0.05, 1, 0.606
    )
    flash2_fraction: float = number(
        "Rate of FlashAttention-2 relative to the GPU's best attention kernel.", 0.05, 1, 1.0
    )
    flash2_backward_fraction: float = number(
        "Rate of FlashAttention-2 backward relative to the best kernel.", 0.05, 1, 1.0
    )
    attention_widest: float = number("Head width above which the rate of attention no longer grows.", 64, 1024, 256.0)
    attention_ramp: float = number("Sequence length at which attention runs at half its rate.", 0, 1e5, 430.0)
    attention_backward_ramp: float = number(
        "Sequence length at which attention backward runs at half its rate.", 0, 1e5, 887.0
    )
    tile_ramp: float = number("Blocks of 128 queries at which attention runs at half its rate.", 0, 1e5, 166.0)
    softmax_ramp: float = number("Sequence length at which attention takes twice its energy.", 0, 1e5, 220.0)
    launch_s: float = number("Host time to launch a GEMM in eager PyTorch.", 0, 1e-2, 13.4e-6)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """Constants of gpu/physics.py, where the rules stand."""

    hold_fraction: float = number("Target of the one-second mean power, relative to the cap.", 0.5, 1.2, 0.987)
    mean_s: float = number("Length of the mean that is held at the cap.", 0.01, 60, 1.0)
    burst_fraction: float = number(
        "Power allowed in a burst until the mean reaches its target, relative to the cap.", 0.5, 2, 1.04
    )
    tick_s: float = number("Control period; each decision uses the mean power of the last two.", 1e-3, 1, 0.025)
    climb_fraction: float = number(
        "Share of the distance to its target that the clock rises in one period.", 0.01, 1, 0.4
    )
    burst_clock_fraction: float = number(
        "Highest clock with fully used matrix units, relative to the maximum.", 0.1, 1, 1.0
    )
    thermal_step_fraction: float = number(
        "Reduction of the clock for each degree above the operating limit.", 0, 10, 0.55
    )
    thermal_hysteresis_k: float = number(
        "Degrees that a GPU at its least clock cools before the clock returns; 0: it follows the heat.", 0, 20, 0.0
    )
    slowdown_fraction: float = number("Least clock that heat leaves, relative to the one asked for.", 0.05, 1, 0.25)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Constants of gpu/heat.py, where the equation stands."""

    die_resistance_k_per_w: float = number("Thermal resistance from die to base (the fast part).", 0, 2)
    die_time_s: float = number("Time constant of the die.", 1e-3, 100)
    base_resistance_k_per_w: float = number("Thermal resistance from base to sink.", 0, 2)
    base_time_s: float = number("Time constant of the base.", 1e-3, 1e4)
    sink_resistance_k_per_w: float = number("Thermal resistance from a package's sink to the air or coolant.", 1e-4, 2)
    sink_time_s: float = number("Time constant of the sink.", 0.1, 1e5)
    memory_byte_heat_j: float = number("Heat per byte of memory traffic that does not reach the die.", 0, 1e-9)
    memory_board_resistance_k_per_w: float = number(
        "Temperature rise of memory above the sink, per watt of board power.", 0, 5
    )
    memory_resistance_k_per_w: float = number("Temperature rise of memory per watt of its own traffic.", 0, 5)
    memory_rest_k: float = number("Temperature rise of memory at rest, above the sink.", 0, 60, 0.0)
    memory_time_s: float = number("Time constant of memory.", 0.01, 1e4, 8.0)

    def __post_init__(self) -> None:
        check_fields(self)
