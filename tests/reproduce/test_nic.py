"""The bandwidth of the paper's nodes: bounds of the artifact, the range they leave, verdicts that depend on it."""

from typing import Any

from charllm.report.claims import Claim
from charllm.reproduce.conditions import Setting
from charllm.reproduce.document import write_document
from charllm.reproduce.finding import Configuration, Finding, read
from charllm.reproduce.looks import key_of
from charllm.reproduce.maps import network_map
from charllm.reproduce.nic import FACTORS, bounds, infer_nic, nic_runs, nic_words
from charllm.reproduce.paper import H200, run_of
from charllm.reproduce.verdicts import judge_all

RUN = run_of(H200, "gpt3-175b tp8-pp4 / act")


def rows(over: float) -> dict[str, dict[str, Any]]:
    """Return rows whose steps take some times their bound at 100 Gb/s, all of it communication."""
    return {
        key_of(Setting(nic=factor).apply(bound.run)): {
            "step_time_s": over * bound.longest_s / factor, "exposed_s": over * bound.longest_s / factor,
        }
        for bound in bounds() for factor in FACTORS
    }  # fmt: skip


def test_each_bound_is_tried_at_every_bandwidth() -> None:
    assert len({key_of(run) for run in nic_runs()}) == len(bounds()) * len(FACTORS)


def test_bounds_that_are_missed_by_little_leave_the_nominal_bandwidth_possible() -> None:
    near, far = infer_nic(rows(1.1)), infer_nic(rows(10.0))
    assert (near["low_gbit_per_s"], near["likely_from_gbit_per_s"]) == (100.0, 200.0)
    assert far["low_gbit_per_s"] == 800.0
    assert infer_nic({})["low_gbit_per_s"] == 100.0


def test_a_verdict_says_whether_it_depends_on_the_bandwidth() -> None:
    claim = Claim(name="fast", text="It is fast.", unit="tokens/s", least=3.0)
    finding = Finding(claim=claim, configurations={"one": Configuration((RUN,), read("tokens_per_s"))})
    seen = {key_of(one.apply(RUN)): {"tokens_per_s": one.nic} for one in network_map().settings}
    (judged,) = judge_all([finding], seen, drawn=False, mapped=True)
    inferred = infer_nic(rows(1.1))
    assert nic_words(judged, inferred) == "holds at 400 Gb/s a node; holds at 800 Gb/s a node"
    assert nic_words(judged, None) is None
    assert "100 to 800 Gb/s a node" in write_document([judged], [], [], None, inferred)
