from typing import Any

import pytest

from charllm.catalog.tables import entries
from charllm.evaluate.published import Row
from charllm.evaluate.scores import describe_scores
from charllm.evaluate.time import measured_step_s, predict_rows, resolve_row
from charllm.result.uncertainty import intervals
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import predict
from charllm.workload.step import build_step

DENSE: dict[str, str] = {
    "id": "NV-001", "source": "own", "gpu": "H100-SXM5-80GB", "n_gpus": "8", "gpus_per_node": "8", "interconnect": "",
    "framework": "NeMo 24.09", "model": "Llama 3 8B", "params_b": "8.03", "layers": "32", "hidden": "4096",
    "ffn": "14336", "heads": "32", "kv_heads": "8", "vocab": "128256", "experts": "", "topk": "", "seq": "8192",
    "gbs": "128", "mbs": "1", "precision": "bf16", "tp": "1", "pp": "1", "vpp": "", "cp": "2", "ep": "", "dp": "4",
    "fsdp_or_zero": "distributed optimizer", "sp": "", "recompute": "none", "overlap": "", "notes": "",
    "iter_time_s": "11.0", "tokens_per_s_per_gpu": "11915", "tflops_per_gpu": "640", "mfu": "0.647",
    "memory_gb": "70",
}  # fmt: skip
SPARSE = {
    **DENSE, "id": "NV-002", "n_gpus": "64", "model": "Mixtral 8x7B", "hidden": "4096", "vocab": "32000",
    "experts": "8", "topk": "2", "seq": "4096", "gbs": "256", "tp": "1", "pp": "4", "vpp": "8", "cp": "1", "ep": "8",
    "dp": "16", "iter_time_s": "", "tokens_per_s_per_gpu": "12000",
}  # fmt: skip
PIPELINE = {
    **DENSE, "id": "NV-003", "n_gpus": "64", "model": "Llama 3 70B", "layers": "80", "hidden": "8192", "ffn": "28672",
    "heads": "64", "tp": "4", "pp": "4", "vpp": "5", "cp": "2", "dp": "2", "sp": "yes", "iter_time_s": "14.5",
    "tokens_per_s_per_gpu": "",
}  # fmt: skip
ROWS = [DENSE, SPARSE, PIPELINE]
MEASURED = (
    "iter_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "memory_gb", "power_w", "energy_j_per_token",
    "metric_name", "metric_value", "unit", "notes",
)  # fmt: skip


def changed(row: Row = DENSE, /, **changes: str) -> dict[str, str]:
    return {**row, **changes}


def test_rows_are_predicted_and_scored() -> None:
    predictions, skipped = predict_rows(ROWS)
    assert not skipped
    assert [prediction.id for prediction in predictions] == ["NV-001", "NV-002", "NV-003"]
    for prediction in predictions:
        assert prediction.score is not None
        assert prediction.predicted_s == prediction.score.predicted_s > 0
    first = predictions[0].score
    assert first is not None
    assert (first.source, first.gpu, first.precision, first.kind) == ("NV", "h100", "bf16", "dense")
    assert (first.family, first.measured_s) == ("NV llama3-8b h100", 11.0)


def test_a_prediction_is_the_simulated_step() -> None:
    (prediction,), _ = predict_rows([DENSE])
    assert prediction.predicted_s == predict(resolve_row(DENSE)).result.metrics["step_time_s"]
    (fast,), _ = predict_rows([DENSE], closed=False)
    assert fast.predicted_s == solve_step(build_step(resolve_row(DENSE))).step_time_s


def test_predictions_do_not_look_at_what_was_measured() -> None:
    blanked = [{**row, **dict.fromkeys(MEASURED, "")} for row in ROWS]
    absurd = [{**row, **dict.fromkeys(MEASURED, "123456")} for row in ROWS]
    absent = [{name: value for name, value in row.items() if name not in MEASURED} for row in ROWS]
    expected = [(one.id, one.predicted_s, one.fits) for one in predict_rows(ROWS)[0]]
    for rows in (blanked, absurd, absent):
        assert [(one.id, one.predicted_s, one.fits) for one in predict_rows(rows)[0]] == expected


def test_a_row_without_a_time_is_predicted_but_not_scored() -> None:
    (prediction,), (skipped,) = predict_rows([changed(iter_time_s="", tokens_per_s_per_gpu="")])
    assert prediction.score is None
    assert prediction.predicted_s > 0
    assert (skipped.id, skipped.reason) == ("NV-001", "no time given")


def test_a_model_nobody_knows_is_skipped_with_its_reason() -> None:
    predictions, (skipped,) = predict_rows([changed(model="Hyperion 9B", hidden=""), DENSE])
    assert [prediction.id for prediction in predictions] == ["NV-001"]
    assert skipped.reason == "model: got 'Hyperion 9B'; expected a name in the catalog, or the columns hidden"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"dp": "3"}, "ranks"), ({"gbs": "127"}, "multiple"), ({"layers": ""}, "layers: blank"), ({"gpu": "TPU"}, "TPU")],
)
def test_rows_that_contradict_themselves_are_skipped(changes: dict[str, str], reason: str) -> None:
    predictions, (skipped,) = predict_rows([{**DENSE, **changes}])
    assert not predictions
    assert reason in skipped.reason


@pytest.mark.parametrize(
    ("printed", "rate", "expected"),
    [
        ("11.0", "1", 11.0),
        ("", "8192", 16.0),
        ("unknown", "8192", 16.0),
        ("nan", "8192", 16.0),
        ("0", "8192", 16.0),
        ("-1", "", None),
        ("", "", None),
        ("", "fast", None),
        ("inf", "0", None),
    ],
)
def test_a_time_is_printed_or_follows_from_tokens(printed: str, rate: str, expected: float | None) -> None:
    # 128 sequences of 8192 tokens on 8 GPUs at 8192 tokens a second each.
    assert measured_step_s(changed(iter_time_s=printed, tokens_per_s_per_gpu=rate)) == expected


def default_of(framework: str, field: str) -> Any:
    return entries("frameworks")[framework].values.get(field)


def test_blank_recomputation_is_the_frameworks_default() -> None:
    assert resolve_row(changed(recompute="")).training.recompute == default_of("nemo", "default_recompute")
    assert resolve_row(changed(recompute="full")).training.recompute == "full"


def test_blank_recomputation_is_the_least_that_fits_where_nothing_is_usual() -> None:
    sharded = {"framework": "torchtitan (PyTorch FSDP2/DTensor)", "fsdp_or_zero": "FSDP2 (ZeRO-3) 8", "recompute": ""}
    roomy = {**DENSE, **sharded, "cp": "1", "dp": "8", "seq": "1024"}
    assert default_of("fsdp", "default_recompute") not in ("none", "selective", "full")
    assert resolve_row(roomy).training.recompute == "none"
    tight = resolve_row({**roomy, "seq": "32768"}).training.recompute
    assert tight in ("selective", "full")


def test_a_blank_microbatch_is_the_largest_that_fits() -> None:
    batch = 128 // 4
    chosen = resolve_row(changed(mbs="")).training.micro_batch_size
    assert batch % chosen == 0
    assert chosen >= 1
    fits = {
        row.id: row.fits for row in predict_rows([changed(mbs=str(chosen)), changed(mbs=str(2 * chosen), id="2")])[0]
    }
    assert fits["NV-001"]
    assert chosen == batch or not fits["2"]


def test_a_blank_microbatch_is_found_where_dp_is_blank_too() -> None:
    given_dp, blank_dp = (resolve_row(changed(mbs="", dp=dp)) for dp in ("4", ""))
    assert blank_dp == given_dp


def test_a_microbatch_that_fits_whole_is_taken_at_once() -> None:
    assert resolve_row(changed(mbs="", gbs="8", seq="1024")).training.micro_batch_size == 2


def test_a_blank_microbatch_in_a_pipeline_is_one() -> None:
    assert resolve_row(changed(PIPELINE, mbs="")).training.micro_batch_size == 1


def test_a_blank_overlap_is_the_frameworks_default() -> None:
    assert set(resolve_row(PIPELINE).parallelism.overlap) == set(default_of("nemo", "default_overlap"))
    # With tp and pp of 1 only gradients are exchanged.
    assert resolve_row(DENSE).parallelism.overlap == ("dp",)


@pytest.mark.parametrize("text", ["none", "None", "none (README: no overlap)", "no"])
def test_an_overlap_of_none_is_none(text: str) -> None:
    assert resolve_row(changed(overlap=text)).parallelism.overlap == ()


@pytest.mark.parametrize("text", ["not stated", "noted in the log", "no EP A2A overlap; step: CUDA Graphs"])
def test_words_that_begin_like_none_are_not_none(text: str) -> None:
    assert resolve_row(changed(overlap=text)).parallelism.overlap == resolve_row(DENSE).parallelism.overlap


def test_what_a_row_overlaps_is_added_to_the_default() -> None:
    overlap = resolve_row(changed(SPARSE, overlap="EP comm overlap")).parallelism.overlap
    assert set(overlap) == {"ep", *default_of("nemo", "default_overlap")} - {"tp"}


def test_blank_chunks_follow_the_framework() -> None:
    # NeMo's recipes interleave: 80 layers on 4 stages, at most 8 chunks of equal size.
    assert resolve_row(changed(PIPELINE, vpp="")).parallelism.vpp == 5
    assert resolve_row(changed(PIPELINE, vpp="", layers="96")).parallelism.vpp == 8
    assert resolve_row(changed(PIPELINE, vpp="2")).parallelism.vpp == 2
    assert resolve_row(changed(PIPELINE, vpp="1")).parallelism.vpp == 1
    assert resolve_row(changed(PIPELINE, vpp="", framework="Megatron-LM")).parallelism.vpp == 1


def test_blank_chunks_are_none_where_microbatches_do_not_go_round() -> None:
    # 9 microbatches on 4 stages cannot be interleaved, so they were not.
    assert resolve_row(changed(PIPELINE, vpp="", gbs="18")).parallelism.vpp == 1
    assert resolve_row(changed(PIPELINE, vpp="", gbs="16")).parallelism.vpp == 5


def test_every_row_has_a_class() -> None:
    assert [resolve_row(row).scored_as for row in ROWS] == ["dense", "moe", "dense"]
    lora = changed(PIPELINE, model="Llama2-70B LoRA", vocab="32000", seq="4096")
    assert resolve_row(lora).scored_as == "lora"


def test_a_prediction_has_the_interval_that_its_run_has() -> None:
    (known, unknown), _ = predict_rows([changed(source="NVIDIA/NeMo"), changed(source="own")])
    found = intervals(predict(resolve_row(changed(source="NVIDIA/NeMo"))).result)["step_time_s"]
    assert known.score is not None
    assert unknown.score is not None
    assert known.score.interval_s == pytest.approx((found["low"], found["high"]), rel=0.01)
    assert (known.score.host, unknown.score.host) == ("tuned", "not stated")
    narrow, wide = known.score.interval_s or (0.0, 0.0), unknown.score.interval_s or (0.0, 0.0)
    assert wide[0] <= narrow[0] < narrow[1] < wide[1]
    assert describe_scores([known.score])["covered_fraction"] in (0.0, 1.0)
