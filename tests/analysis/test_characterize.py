from pathlib import Path

import numpy as np
import pytest

from charllm.analysis.characterize import characterize
from charllm.analysis.power_states import find_states
from charllm.analysis.rhythm import find_period
from charllm.analysis.unlike import find_outliers, group_temperatures
from charllm.arrays import Floats
from charllm.measure.marks import read_marks
from charllm.measure.quantities import BEATS
from charllm.measure.recording import Recording, Series, read_recording
from charllm.measure.telemetry.source import GpuIdentity, SourceFacts

CAPTURE = Path(__file__).parent.parent / "measure" / "captures" / "h200-train"
GPUS = 8


def recorded(times_s: Floats, power_w: Floats, temperature_c: Floats | None = None, name: str = "") -> Recording:
    """A recording of power [readings, GPUs], and of temperature where it is given."""
    series: dict[int, dict[str, Series]] = {}
    for gpu in range(power_w.shape[1]):
        known = {"power_instant_w": power_w[:, gpu]}
        if temperature_c is not None:
            known["temperature_c"] = temperature_c[:, gpu]
        nothing = np.full(len(times_s), np.nan)
        series[gpu] = {
            beat: Series(times_s, times_s, times_s * 0, {name: known.get(name, nothing) for name in names})
            for beat, names in BEATS.items()
        }
    gpus = tuple(GpuIdentity(f"gpu{gpu}", name, gpu) for gpu in range(power_w.shape[1]))
    return Recording(SourceFacts("test", gpus), series)


def job(
    random: np.random.Generator, seconds: int = 600, every_s: float = 60.0, lasting_s: float = 12.0
) -> tuple[Floats, Floats]:
    """Rest, then work in steps of 1.7 s with a checkpoint every minute, then rest; ten readings a second."""
    times = np.arange(0, seconds, 0.1)
    step_w = 40 * np.sin(2 * np.pi * times / 1.7)
    working = (times > 60) & (times < seconds - 40)
    saving = ((times - 60) % every_s) > every_s - lasting_s
    mean_w = np.where(working, np.where(saving, 150.0, 600 + step_w), 75.0)
    return times, mean_w[:, None] + random.normal(0, 6, (len(times), GPUS))


def test_states_are_found_with_their_shares() -> None:
    random = np.random.default_rng(1)
    times, power = job(random)
    states = characterize(recorded(times, power), {}).power_states
    assert [state.power_w for state in states] == pytest.approx([75, 150, 600], rel=0.05)
    assert sum(state.share for state in states) == pytest.approx(1.0)
    assert states[-1].name == "compute"
    assert states[0].name == "idle"


def test_boards_that_differ_are_one_state() -> None:
    random = np.random.default_rng(2)
    resting = [random.normal(level, 0.5, 500) for level in (70, 72, 74, 85, 86, 88)]
    assert len(find_states(resting)) == 1
    working = [np.concatenate([rest, random.normal(600, 10, 500)]) for rest in resting]
    assert [state.name for state in find_states(working)] == ["idle", "compute"]


def test_a_steady_load_is_one_state() -> None:
    random = np.random.default_rng(3)
    assert len(find_states([random.normal(400, 8, 600) for _ in range(GPUS)])) == 1


def test_steps_and_checkpoints_are_found_in_power() -> None:
    times, power = job(np.random.default_rng(4))
    found = characterize(recorded(times, power), {})
    assert found.step_period is not None
    assert found.step_period.period_s == pytest.approx(1.7, rel=0.03)
    assert found.step_period.source == "power"
    assert found.dips is not None
    assert found.dips.regular
    assert found.dips.period_s == pytest.approx(60, rel=0.03)
    assert found.dips.work_s == pytest.approx(48, rel=0.05)
    assert found.dips.duration_s == pytest.approx(12, rel=0.1)


def test_noise_has_no_step() -> None:
    random = np.random.default_rng(5)
    found = 0
    for _ in range(12):
        white = random.normal(0, 8, 2000)
        red = np.zeros(2000)
        for place in range(1, 2000):
            red[place] = 0.9 * red[place - 1] + white[place]
        found += find_period([500 + white], 0.1) is not None
        found += find_period([500 + red], 0.1) is not None
    assert found == 0


def test_marks_tell_the_step_where_a_job_left_them() -> None:
    recording, marks = read_recording(CAPTURE), read_marks(CAPTURE)
    found = characterize(recording, marks)
    assert found.step_period is not None
    assert found.step_period.source == "marks"
    assert 0.05 < found.step_period.period_s < 0.2
    assert [state.name for state in found.power_states][-1] == "compute"
    # Shown anew every 100 ms, power cannot show steps of 80 ms.
    assert characterize(recording, {}).step_period is None


def warm(random: np.random.Generator, offsets_k: list[float]) -> Recording:
    times = np.arange(0, 300.0, 1.0)
    power = np.where(times[:, None] < 60, 75.0, 600.0) + random.normal(0, 3, (len(times), GPUS))
    temperature = 25 + 0.05 * power + np.array(offsets_k) + random.normal(0, 0.3, (len(times), GPUS))
    return recorded(times, power, np.round(temperature))


def test_front_and_rear_are_two_groups_and_nobody_is_apart() -> None:
    found = characterize(warm(np.random.default_rng(6), [0, 0.5, 8, 8.4, 0.2, 0.6, 8.2, 8.6]), {})
    assert [group.gpus for group in found.temperature_groups] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert not found.outliers
    assert found.temperature_spread_k == pytest.approx(8.6, abs=0.7)


def test_a_hot_gpu_is_named() -> None:
    found = characterize(warm(np.random.default_rng(7), [0, 16, 6, 6.5, 0.2, 0.6, 6.2, 6.9]), {})
    assert [(one.gpu, one.quantity) for one in found.outliers] == [(1, "temperature_c")]
    assert found.outliers[0].value - found.outliers[0].others > 9


def test_healthy_gpus_are_not_accused() -> None:
    random = np.random.default_rng(8)
    accused = 0
    for _ in range(100):
        rear = np.tile([0.0, 0.0, 7.0, 7.0], 2)
        accused += bool(
            find_outliers(dict(enumerate(60 + rear + random.normal(0, 1.5, GPUS))), "temperature_c", "load")
        )
        accused += bool(find_outliers(dict(enumerate(600 + random.normal(0, 8, GPUS))), "power_w", "load"))
    assert accused <= 4


def test_a_slow_clock_is_named_and_equal_ones_are_not() -> None:
    clocks = dict.fromkeys(range(GPUS), 1.98e9)
    assert not find_outliers(clocks, "clock_hz", "load")
    assert [one.gpu for one in find_outliers({**clocks, 5: 1.7e9}, "clock_hz", "load")] == [5]


def test_few_gpus_say_nothing() -> None:
    assert not find_outliers({0: 50.0, 1: 50.0, 2: 90.0}, "temperature_c", "load")
    assert group_temperatures({}) == []
