"""Settings: what a run is subjected to."""

from charllm.catalog.resolve import resolve_run
from charllm.network.constants import constants_of
from charllm.reproduce.conditions import Setting
from charllm.reproduce.paper import DATACENTER, H200, run_of

RUN = run_of(H200, "gpt3-175b tp8-pp4 / act")


def test_the_usual_setting_changes_nothing() -> None:
    assert Setting().apply(RUN) == RUN
    assert Setting().words == "inlet 25 C"


def test_a_setting_is_told_in_factors_of_the_cluster() -> None:
    usual = resolve_run(RUN)
    asked = Setting(inlet_c=40.0, flow=0.7, preheat=2.0, spread=0.1, cap=0.8, nic=4.0, rate=0.9, energy=1.1, seed=3)
    run = resolve_run(asked.apply(RUN))
    assert run.cluster.cooling.inlet_c == 40.0
    assert run.cluster.cooling.flow_fraction == 0.7
    assert run.cluster.node.preheat_k_per_w == 2 * usual.cluster.node.preheat_k_per_w
    assert run.cluster.fabric.nic_bandwidth_bytes_per_s == 4 * usual.cluster.fabric.nic_bandwidth_bytes_per_s
    assert run.cluster.gpu.kernels.rate_fraction == 0.9 * usual.cluster.gpu.kernels.rate_fraction
    assert run.cluster.gpu.power.energy_fraction == 1.1 * usual.cluster.gpu.power.energy_fraction
    assert run.conditions.power_cap_w == 0.8 * usual.cluster.gpu.power_cap_w
    assert (run.conditions.silicon_spread_fraction, run.conditions.seed) == (0.1, 3)
    assert run.model == usual.model
    assert "airflow x 0.7, preheat x 2, silicon spread 10 %, power cap x 0.8, NIC bandwidth x 4" in asked.words


def test_scaled_clusters_keep_identical_gpus_whatever_their_size() -> None:
    for case in ("32 GPUs", "8192 GPUs"):
        run = run_of(DATACENTER, f"gpt3-175b tp8-pp4 / {case} / Gbps 100")
        assert "conditions" not in Setting(spread=0.1).apply(run)


def test_bandwidth_and_latency_are_factors_of_the_calibrated_constants() -> None:
    usual = constants_of(resolve_run(RUN).cluster)
    found = constants_of(resolve_run(Setting(link_share=0.9, nic_share=0.8, latency=1.5).apply(RUN)).cluster)
    assert (found.link_fraction, found.nic_fraction) == (0.9 * usual.link_fraction, 0.8 * usual.nic_fraction)
    assert (found.latency_s, found.hop_s) == (1.5 * usual.latency_s, 1.5 * usual.hop_s)
    assert found.nic_hop_s == 1.5 * usual.nic_hop_s
    assert found.switch_fraction == usual.switch_fraction
