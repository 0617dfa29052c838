"""What the governor does at a tick, whatever the numbers."""

from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_cluster
from charllm.gpu.physics import BRAKE, POWER, THERMAL, board_of, next_clock
from charllm.spec.run import Conditions

GPU = resolve_cluster("h200x8").gpu
BOARD = board_of(GPU)
CLOCKS = st.floats(GPU.clock_idle_hz, GPU.clock_max_hz)
WATTS, DEGREES = st.floats(60, 1500), st.floats(0, 120)


@given(CLOCKS, WATTS, WATTS, DEGREES, CLOCKS)
def test_a_clock_stays_between_the_lowest_and_the_one_asked_for(
    clock_hz: float, seen_w: float, mean_w: float, degrees_c: float, brake_hz: float
) -> None:
    after_hz, cause = next_clock(BOARD, clock_hz, seen_w, mean_w, 120.0, degrees_c, brake_hz, 60.0)
    assert BOARD.clock_min_hz <= after_hz <= min(BOARD.asked_clock_hz, max(brake_hz, BOARD.clock_min_hz))
    assert cause in (0, POWER, THERMAL, BRAKE)
    assert (cause == 0) or after_hz < BOARD.asked_clock_hz


@given(CLOCKS, WATTS, WATTS, WATTS, DEGREES)
def test_more_power_never_leaves_a_higher_clock(
    clock_hz: float, one_w: float, other_w: float, mean_w: float, degrees_c: float
) -> None:
    low_w, high_w = sorted((one_w, other_w))
    after_low, after_high = (
        next_clock(BOARD, clock_hz, watts, mean_w, 120.0, degrees_c, BOARD.asked_clock_hz, 60.0)[0]
        for watts in (low_w, high_w)
    )
    assert after_high <= after_low


@given(CLOCKS, WATTS, WATTS, DEGREES, DEGREES)
def test_more_heat_never_leaves_a_higher_clock(
    clock_hz: float, seen_w: float, mean_w: float, one_c: float, other_c: float
) -> None:
    after_cool, after_hot = (
        next_clock(BOARD, clock_hz, seen_w, mean_w, 120.0, degrees, BOARD.asked_clock_hz, 60.0)[0]
        for degrees in sorted((one_c, other_c))
    )
    assert after_hot <= after_cool


def test_causes_are_named() -> None:
    def cause(watts: float = 300.0, degrees_c: float = 60.0, brake_hz: float = BOARD.asked_clock_hz) -> int:
        return int(next_clock(BOARD, BOARD.asked_clock_hz, watts, watts, 120.0, degrees_c, brake_hz, 60.0)[1])

    assert cause() == 0
    assert cause(watts=900.0) == POWER
    assert cause(degrees_c=GPU.slowdown_temperature_c + 1) == THERMAL
    assert cause(brake_hz=1e9) == BRAKE


def test_a_package_shares_its_cap() -> None:
    gpu = resolve_cluster("mi250x8").gpu
    assert board_of(gpu).hold_w == gpu.governor.hold_fraction * gpu.power_cap_w / 2
    assert board_of(gpu, Conditions(power_cap_w=300.0)).hold_w == gpu.governor.hold_fraction * 150
