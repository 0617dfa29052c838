"""Which ops the bench runs: enough of every kind, in ten minutes."""

from charllm.gpu.shape import check_shape
from charllm.measure.bench.run import MODES
from charllm.measure.bench.suite import CAPPED_S, full_suite, short_suite
from charllm.units import MILLI

GROUPS = {
    "gemm", "small gemm", "host-bound", "fp8 gemm", "grouped gemm", "attention", "memory", "values", "duty",
    "square wave", "soak", "communication", "overlap",
}  # fmt: skip
REFRESH_S = 0.1


def test_the_full_suite_has_at_least_120_ops_of_every_group_in_ten_minutes() -> None:
    suite = full_suite()
    assert len(suite) >= 120
    assert {case.group for case in suite} == GROUPS
    assert sum(case.seconds_s for case in suite) <= 600


def test_names_are_unique() -> None:
    names = [case.name for case in full_suite()]
    assert len(names) == len(set(names))


def test_every_case_can_be_run() -> None:
    for case in full_suite():
        assert case.mode in MODES
        if case.shape is not None:
            check_shape(case.shape, case.name)
        assert case.shape is not None or case.mode != "burst"
        assert (case.beside in ("spin", "copy") and case.blocks > 0) == (case.mode == "beside")


def test_ops_that_meet_the_power_cap_run_for_at_least_five_seconds() -> None:
    capped = [case for case in full_suite() if case.group in ("gemm", "fp8 gemm", "values")]
    assert len(capped) > 30
    assert CAPPED_S >= 5
    assert all(case.seconds_s >= CAPPED_S for case in capped)


def test_bursts_never_keep_step_with_the_sensor() -> None:
    bursts = [case for case in full_suite() if case.mode == "burst"]
    assert len(bursts) >= 10
    for case in bursts:
        assert 0 < case.on_s < case.period_s
        beats = case.period_s / REFRESH_S
        assert abs(beats - round(beats)) > 0.05 or round(beats) == 0, case.name


def test_duty_cycles_are_as_they_are_named() -> None:
    for case in full_suite():
        if case.group == "duty":
            assert round(100 * case.on_s / case.period_s) == int(case.name.removeprefix("duty."))
        if case.group == "square wave":
            assert case.name == f"burst.{case.on_s / MILLI:.0f}ms"


def test_the_short_suite_is_a_part_of_the_full_one() -> None:
    full, short = full_suite(), short_suite()
    assert all(case in full for case in short)
    assert 15 <= len(short) <= len(full) / 3
    assert len({case.group for case in short}) >= 6


def test_the_kernels_that_most_bytes_of_a_step_pass_through_are_in_it() -> None:
    kinds = {case.shape.kind for case in full_suite() if case.shape is not None}
    assert {"copy", "add", "gelu", "norm", "rmsnorm", "norm_backward", "permute", "cast", "optimizer"} <= kinds
