"""Each entry of each dict of choices works end to end."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.result.result import all_finite
from charllm.simulate.predict import simulate
from charllm.spec.fields import rules
from charllm.spec.framework import Framework
from charllm.spec.model import ACTIVATIONS, ATTENTIONS, BIASES, NORMS, POSITIONS
from charllm.spec.parallelism import CP_KINDS
from charllm.spec.request import merge, parse_settings
from charllm.spec.schedules import SCHEDULES
from charllm.spec.training import LORA_TARGETS, OPTIMIZERS, PRECISIONS, RECOMPUTE_MODULES, RECOMPUTES
from charllm.workload.liveness import FLIGHTS
from charllm.workload.op import COLLECTIVES
from charllm.workload.recompute import POLICIES
from charllm.workload.vocabulary import LOSS_BYTES, LOSS_MOVED_BYTES

REQUEST: dict[str, Any] = {
    "model": {"base": "deepseek-v3-4l", "experts": 32},
    "cluster": "b200x8",
    "parallelism": {"ep": 2, "cp": 2, "pp": 2},
    "training": {"global_batch_size": 64},
}
FLAGS = [field for field, rule in rules(Framework).items() if rule.kind == "bool"]
SETTINGS = [
    *(f"model.activation={value}" for value in ACTIVATIONS),
    *(f"model.norm={value}" for value in NORMS),
    *(f"model.position={value}" for value in POSITIONS),
    *(f"model.bias={value}" for value in BIASES),
    *(f"model.attention={value}" for value in ATTENTIONS),
    *(f"model.norms_per_layer={value}" for value in (1, 2, 3, 4)),
    *(f"training.precision={value}" for value in PRECISIONS),
    *(f"training.recompute={value}" for value in RECOMPUTES),
    *(f"training.optimizer={value}" for value in OPTIMIZERS),
    *(f"parallelism.cp_kind={value}" for value in CP_KINDS),
    *(f"parallelism.schedule={value}" for value in SCHEDULES if value != "interleaved"),
    *(f"parallelism.zero={value}" for value in range(4)),
    *(f"framework={value}" for value in sorted(entries("frameworks"))),
    *(f"framework.{field}={value}" for field, rule in rules(Framework).items() for value in rule.options),
    *(f"framework.{field}={value}" for field in FLAGS for value in ("true", "false")),
    "parallelism.vpp=2",
    "training.capacity_factor=1.5",
    "training.routing_skew=2.0",
    "training.grouped_gemm=false",
    "model.window=128",
]  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_choice_simulates(setting: str) -> None:
    request = merge(REQUEST, parse_settings([setting]))
    result = simulate(resolve_run(request))
    assert all_finite(result.as_table())
    assert result.metrics["executed_flop"] >= result.metrics["model_flop"] * 0.99


@pytest.mark.parametrize("module", RECOMPUTE_MODULES)
def test_recomputing_a_module_keeps_no_more_and_is_no_faster(module: str) -> None:
    settings = ["training.recompute=selective", f"training.recompute_modules=['{module}']"]
    plain, again = (
        simulate(resolve_run(merge(REQUEST, parse_settings(words)))).metrics
        for words in (["training.recompute=none"], settings)
    )
    kept, less = (one["memory_breakdown_bytes"]["activations"] for one in (plain, again))
    assert less <= kept
    # A module that keeps less runs its ops again.
    assert again["executed_flop"] >= plain["executed_flop"]
    assert again["breakdown_s"]["recompute"] > 0 or less == kept


@pytest.mark.parametrize("target", LORA_TARGETS)
def test_an_adapter_can_sit_anywhere(target: str) -> None:
    settings = ["model=llama3-8b", "parallelism.ep=1", "training.lora_rank=8", f"training.lora_targets=['{target}']"]
    result = simulate(resolve_run(merge(REQUEST, parse_settings(settings))))
    assert result.metrics["memory_breakdown_bytes"]["optimizer"] > 0


def test_every_schedule_knows_its_microbatches_in_flight() -> None:
    assert set(FLIGHTS) == set(SCHEDULES)


def test_every_named_policy_and_loss_exists() -> None:
    assert {"none", "full"} | set(rules(Framework)["selective"].options) == set(POLICIES)
    assert set(rules(Framework)["cross_entropy"].options) == set(LOSS_BYTES) == set(LOSS_MOVED_BYTES)


@pytest.mark.parametrize("kind", sorted(COLLECTIVES))
def test_a_collective_sends_more_with_more_ranks(kind: str) -> None:
    sent = [COLLECTIVES[kind](degree) for degree in (2, 4, 8)]
    assert sent == sorted(sent)
    assert sent[0] > 0
