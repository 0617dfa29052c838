"""The paper's claims, read off the cases of a study."""

from typing import Any

from charllm.report.claims import UNDECIDED
from charllm.report.page.cases import StudiedCase, group_cases
from charllm.report.page.claims import claims, pairs_apart_in
from tests.report.page.made_cases import make_case


def losing(name: str, lost: float, **changes: Any) -> StudiedCase:
    return make_case(name, 10.0, **{"clock_loss_fraction.power": lost, **changes})


def verdicts(*cases: StudiedCase) -> dict[str, str]:
    return {found.name: found.verdict for found in claims(group_cases(cases))}


def test_deep_pipelines_are_compared_with_the_widest_tensor_parallel_case_of_their_model() -> None:
    wide, deep = losing("a tp8", 0.05, tp=8, pp=4), losing("a pp16", 0.15, tp=2, pp=16)
    assert verdicts(wide, deep)["deep-pipelines"] == "holds"
    near = losing("a pp16", 0.04, tp=2, pp=16)
    assert verdicts(wide, near)["deep-pipelines"] == UNDECIDED
    assert verdicts(losing("a tp8", 0.3, tp=8, pp=4), near)["deep-pipelines"] == "fails"
    assert verdicts(wide, deep, losing("a pp32", 0.05, tp=1, pp=32))["deep-pipelines"] == UNDECIDED
    assert "deep-pipelines" not in verdicts(wide)
    large = [losing(name, 0.1, tp=tp, pp=pp, settings={"training.micro_batch_size": 8})
             for name, tp, pp in (("a tp8", 8, 4), ("a pp16", 2, 16))]  # fmt: skip
    assert "deep-pipelines" not in verdicts(*large)


def test_overlap_and_microbatches_are_compared_between_cases_that_differ_in_nothing_else() -> None:
    plain = losing("a x / base", 0.05, settings={"model": "a", "parallelism.tp": 4})
    overlapped = losing("a x / cc", 0.18, settings={"model": "a", "parallelism.tp": 4, "parallelism.overlap": ["tp"]})
    other = losing("a y / cc", 0.02, settings={"model": "a", "parallelism.tp": 2, "parallelism.overlap": ["tp"]})
    pairs = pairs_apart_in(group_cases([other, overlapped, plain]), "parallelism.overlap")
    assert [(first.name, second.name) for first, second in pairs] == [("a x / base", "a x / cc")]
    assert verdicts(plain, overlapped, other)["overlap-throttling"] == "holds"
    sizes = [
        losing(
            f"a mbs {size}", 0.1, power_peak_sensor_w=800.0 + 50 * size, settings={"training.micro_batch_size": size}
        )
        for size in (1, 8)
    ]
    assert verdicts(*sizes)["microbatch-peaks"] == "holds"


def test_thermal_throttling_is_judged_by_the_rule_of_the_finding() -> None:
    recomputed = {"settings": {"training.recompute": "full"}}
    cold, hot, warm = (losing(f"a {k}", 0.1, margin_to_slowdown_k=k, **recomputed) for k in (30.0, -20.0, 3.0))
    assert verdicts(cold)["throttling-by-heat"] == "fails"
    assert verdicts(hot)["throttling-by-heat"] == "holds"
    # Closer to the limit than a prediction of a temperature is right.
    assert verdicts(warm)["throttling-by-heat"] == UNDECIDED


def test_overlap_is_judged_where_its_flags_act() -> None:
    def pair(**degrees: int) -> list[StudiedCase]:
        settings = {"parallelism.tp": degrees["tp"]}
        return [
            losing("a x / base", 0.05, settings=settings, **degrees),
            losing("a x / cc", 0.08, settings={**settings, "parallelism.overlap": ["tp"]}, **degrees),
        ]

    assert "overlap-throttling" in verdicts(*pair(tp=2, pp=16))
    assert "overlap-throttling" not in verdicts(*pair(tp=1, pp=32))
    assert "overlap-throttling" not in verdicts(*pair(tp=8, pp=1, zero=3))
