"""Logs of training programs: own lines in the programs' formats."""

import gzip
import json
import math
import time
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.logs import KINDS, Log, LoggedStep, read_log
from charllm.units import GIB, TERA


def megatron(number: int, loss: float = 7.5, ms: float = 500.0) -> str:
    return (
        f" [2026-03-01 10:00:{number % 60:02d}] iteration {number:8d}/{1000:8d} | "
        f"consumed samples: {number * 16:12d} | elapsed time per iteration (ms): {ms:.1f} | "
        f"throughput per GPU (TFLOP/s/GPU): 412.3 | "
        f"learning rate: 1.500000E-04 | global batch size:    16 | lm loss: {loss:.6E} | loss scale: 1.0 | "
        "grad norm: 1.300 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


ARGUMENTS = (
    "  seq_length ...................................... 2048\n  world_size ...................................... 8\n"
)


def test_a_line_of_megatron_says_all_it_holds() -> None:
    log = read_log(ARGUMENTS + megatron(1) + megatron(2, loss=7.25))
    assert (log.kind, len(log.steps), log.settings) == ("megatron", 2, {"seq_length": 2048, "world_size": 8})
    step = log.steps[1]
    assert (step.number, step.steps, step.seconds, step.loss, step.samples) == (2, 1, 0.5, 7.25, 16)
    assert (step.tokens, step.grad_norm) == (16 * 2048, 1.3)
    assert step.flop_per_s == pytest.approx(412.3 * TERA)
    assert step.time_s is not None
    assert step.time_s - (log.steps[0].time_s or 0) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            " iteration      100/ 1000 | elapsed time per iteration (ms): 430.0 | learning rate 1.342E-04 | "
            "lm loss 7.399415E+00 | loss scale 16384.0 |\n",
            {"seconds": 0.43, "loss": 7.399415},
        ),
        (
            " iteration 7/ 90 | consumed samples: 14 | consumed tokens: 28672 | elapsed time per iteration (s): 12.5 | "
            "global batch size: 2 | lm loss: 2.5E+00 | samples per second: 0.16 | TFLOPs: 145.31 |\n",
            {"seconds": 12.5, "consumed_tokens": 28672, "flop_per_s": pytest.approx(145.31 * TERA)},
        ),
        (
            " iteration 3/ 50 | elapsed time per iteration (ms): 1022.0/1030.5 | tokens per GPU (tokens/s/GPU): "
            "8012.1/7990.0 | compute per GPU (TFLOP/s/GPU): 500.1/498.2 | lm loss: 1.2E+01 | loss scale: 1.0 |\n",
            {"seconds": 1.022, "gpu_tokens_per_s": 8012.1, "loss": 12.0},
        ),
        (
            " iteration 9/ 10 | consumed samples: 9 | elapsed time per iteration (ms): 10.0 | lm loss: nan | "
            "power per GPU (W/GPU): 655.2 |\n",
            {"gpu_power_w": 655.2},
        ),
    ],
)
def test_megatron_of_every_year_is_read(line: str, expected: dict[str, float]) -> None:
    log = read_log(line)
    assert log.kind == "megatron"
    assert {name: getattr(log.steps[0], name) for name in expected} == expected


OTHERS: dict[str, tuple[str, dict[str, object]]] = {
    "nemo": (
        "Training epoch 1, iteration 4/99 | lr: 1.0e-07 | global_batch_size: 4 | global_step: 24 | "
        "peak_memory_usage: 70000000000 | reduced_train_loss: 14.66 | train_step_timing in s: 5.276\n",
        {"number": 24, "seconds": 5.276, "loss": 14.66, "memory_bytes": 7e10, "samples": 4},
    ),
    "lightning": (
        "Epoch 0: :   3%|▎   | 90/3015 [1:42:42<55:37:46, v_num=0-56, loss=9.9, reduced_train_loss=7.040, "
        "global_step=89.0, consumed_samples=720.0, train_step_timing in s=0.615, val_loss=7.1]\r\n",
        {"number": 90, "seconds": 0.615, "loss": 7.04, "consumed_samples": 720},
    ),
    "torchtitan": (
        "[titan] 2026-02-24 19:46:17,508 - root - INFO - step: 10  loss:  7.62585  grad_norm: 26.6250  "
        "memory: 47.90GiB(60.40%)  tps: 10,050  tflops: 314.71  mfu: 31.82%\n",
        {"number": 10, "loss": 7.62585, "memory_bytes": pytest.approx(47.9 * GIB), "gpu_tokens_per_s": 10050},
    ),
    "nemo-automodel": (
        "2026-10-01 12:00:00 | INFO | step 4 | epoch 0 | loss 1.5514 | grad_norm 2.5000 | lr 1.00e-05 | "
        "mem 44.21 GiB | tps 6093.16(761.65/gpu) | num_label_tokens 15720\n",
        {"number": 4, "loss": 1.5514, "memory_bytes": pytest.approx(44.21 * GIB), "tokens_per_s": 6093.16},
    ),
    "mlperf": (
        '0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
        '"value": {"train_step_time": 4.19, "reduced_train_loss": 1.31}, "metadata": {"lineno": 73, "step": 48}}\n',
        {"number": 48, "seconds": 4.19, "loss": 1.31, "time_s": 1.0},
    ),
    "nanogpt": (
        "iter 1631: loss 4.0863, time 561.94ms, mfu 35.21%\n",
        {"number": 1631, "seconds": pytest.approx(0.56194), "loss": 4.0863, "mfu_fraction": pytest.approx(0.3521)},
    ),
    "deepspeed": (
        "steps: 12 loss: 6.9301 iter time (s): 0.503 samples/sec: 31.8\n",
        {"number": 12, "loss": 6.9301, "seconds": 0.503, "samples": 16},
    ),
    "nanotron": (
        "iteration: 10 / 100 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: 5.3K | tokens_per_sec: 197K | "
        "tokens_per_sec_per_gpu: 24.6K | global_batch_size: 512 | lm_loss: 12.1 | model_tflops_per_gpu: 300\n",
        {"number": 10, "seconds": 5.3, "tokens_per_s": 197_000, "loss": 12.1, "flop_per_s": 300 * TERA},
    ),
    "huggingface": (
        " 10%|█         | 100/1000 [03:20<30:00,  2.00s/it]{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05}\n",
        {"number": 100, "seconds": 2.0, "loss": 2.31, "learning_rate": 5e-05},
    ),
    "composer": (
        "[epoch=1][batch=5/50]:\n\t Train time/batch: 4\n\t Train loss/train/total: 8.4213\n"
        "\t Train throughput/batches_per_sec: 0.5\n\t Train throughput/tokens_per_sec: 20000.0\ndone\n",
        {"number": 5, "loss": 8.4213, "seconds": 2.0, "tokens": 40_000},
    ),
    "olmo-core": (
        "2025-07-01 10:00:00.123\thost-1:0\tolmo_core.train.callbacks.console_logger:87\tINFO\t"
        "[step=10/1000,epoch=1,eta=1:02:03]\n    optim/LR (group 0)=0.0001\n    optim/total grad norm=1.234\n"
        "    throughput/device/BPS=0.5\n    throughput/device/BPS (actual avg)=0.4\n    throughput/device/MFU=41.20\n"
        "    throughput/device/TPS=16,384\n    throughput/total tokens=41,943,040\n    train/CE loss=10.98\ndone\n",
        {
            "number": 10,
            "seconds": 2.0,
            "loss": 10.98,
            "gpu_tokens_per_s": 16384,
            "grad_norm": 1.234,
            "mfu_fraction": pytest.approx(0.412),
            "consumed_tokens": 41_943_040,
            "tokens": None,
        },
    ),
    "deepspeed-engine": (
        "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
        "RunningAvgSamplesPerSec=25.025, CurrSamplesPerSec=25.704, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n",
        {"number": 10, "time_s": 1699322123.714},
    ),
    "json": (
        '{"number": 3, "loss": 9.5, "seconds_s": 0.25, "tokens": 4096}\n',
        {"number": 3, "loss": 9.5, "seconds": 0.25, "tokens": 4096},
    ),
    "plain": (
        "step   10/18865 | loss 7.5 (+nan%)| norm 1.2 | lr 1e-4 | 300.00 ms | 56.2% bf16 MFU | 17000 tok/s\n",
        {"number": 10, "loss": 7.5, "seconds": pytest.approx(0.3), "tokens": pytest.approx(5100)},
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_programs_are_recognised_and_read(kind: str) -> None:
    text, expected = OTHERS[kind]
    log = read_log(text)
    assert (log.kind, len(log.steps)) == (kind, 1)
    assert {name: getattr(log.steps[0], name) for name in expected} == expected
    assert read_log(text, kind).steps == log.steps


def test_every_kind_is_tried_here() -> None:
    assert set(OTHERS) | {"megatron"} == set(KINDS)


@pytest.mark.parametrize(
    "prefix",
    ["[rank7]:", "[default3]:", "7: ", " 7: ", "[1,7]<stdout>:", "(train pid=12, ip=10.0.0.1) ", "node-17: ", ""],
)
def test_prefixes_of_launchers_and_colours_are_taken_off(prefix: str) -> None:
    text = "".join(f"{prefix}\x1b[32m{megatron(number).rstrip()}\x1b[0m\n" for number in (1, 2, 3))
    log = read_log(text)
    assert [step.number for step in log.steps] == [1, 2, 3]
    assert {step.rank for step in log.steps} <= {None, 3, 7}
    assert (log.steps[0].rank is not None) == any(letter in "37" for letter in prefix if prefix != "node-17: ")


def test_of_ranks_that_all_log_one_is_kept() -> None:
    lines = [f"[rank{rank}]:{megatron(number)}" for number in (1, 2, 3) for rank in (1, 0)]
    log = read_log("".join(lines))
    assert [(step.number, step.rank) for step in log.steps] == [(1, 0), (2, 0), (3, 0)]
    assert log.warnings == ("3 lines repeat a step that another line or rank reports",)
    moved = [f"[rank{3 if number < 3 else 7}]:{megatron(number)}" for number in (1, 2, 3, 4, 5)]
    assert [step.number for step in read_log("".join(moved)).steps] == [1, 2, 3, 4, 5]
    joined = "".join(lines).replace("|\n[rank0]", "|[rank0]")
    assert [step.number for step in read_log(joined).steps] == [1, 2, 3]


def test_a_log_cut_anywhere_gives_the_steps_that_are_whole() -> None:
    whole = "".join(megatron(number, loss=8.123456) for number in (1, 2, 3))
    for cut in range(len(whole)):
        steps = read_log(whole[:cut].encode()).steps
        assert len(steps) >= whole[:cut].count("|\n")
        assert all(step.loss in (8.123456, None) and step.seconds in (0.5, None) for step in steps)
        later = read_log(whole[cut:].encode()).steps
        assert all(step.loss in (8.123456, None) for step in later)


def test_a_last_line_without_an_end_is_left_out_when_it_may_have_lost_digits() -> None:
    text = "iter 1: loss 4.0863, time 561.94ms, mfu 30.10%\niter 2: loss 4.0863, time 56"
    log = read_log(text)
    assert [step.number for step in log.steps] == [1]
    assert log.warnings == ("the last line, of step 2, is cut short and is left out",)
    complete = "iter 1: loss 4.0863, time 561.94ms\niter 2: loss 4.0861, time 561.90ms"
    assert [step.number for step in read_log(complete).steps] == [1, 2]


def test_lines_that_cover_ten_steps_say_so_and_a_restart_repeats_numbers() -> None:
    log = read_log("".join(megatron(number) for number in (10, 20, 30)))
    assert [step.steps for step in log.steps] == [10, 10, 10]
    start = "".join(f"building part {n} of the model\n" for n in range(20))
    again = read_log("".join(megatron(n) for n in (1, 2, 3, 4)) + start + "".join(megatron(n) for n in (3, 4, 5)))
    assert [step.number for step in again.steps] == [1, 2, 3, 4, 3, 4, 5]


def test_durations_follow_from_time_stamps_where_none_is_stated() -> None:
    lines = [
        f"2026-01-01 00:00:{second:02d},500 - INFO - step: {number}  loss: 7.0  memory: 1.00GiB(2%)  mfu: 3%\n"
        for number, second in ((10, 5), (20, 25))
    ]
    first, second = read_log("".join(lines)).steps
    assert (first.seconds, second.seconds, second.steps) == (None, 2.0, 10)


def test_a_pattern_of_the_user_reads_any_log() -> None:
    log = read_log(
        "foo 12 took 250 ms at 3.5\nbar\n", pattern=r"foo (?P<number>\d+) took (?P<ms>\d+) ms at (?P<loss>\S+)"
    )
    assert log.kind == "pattern"
    assert (log.steps[0].number, log.steps[0].seconds, log.steps[0].loss) == (12, 0.25, 3.5)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("(", "a regular expression"), ("step", "(?P<number>...)"), (r"(?P<number>\d+)(?P<speed>\d+)", "groups named")],
)
def test_a_wrong_pattern_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(SpecError, match="--log-pattern") as caught:
        read_log("step 1\n", pattern=pattern)
    assert words in str(caught.value)


def test_what_is_no_log_has_no_steps_and_a_wrong_path_or_kind_is_an_error(tmp_path: Path) -> None:
    assert read_log("nothing\nat all\n") == Log(kind="unknown", warnings=("no line reports on a step",))
    assert read_log(b"").steps == ()
    assert read_log(bytes(range(256)) * 50).steps == ()
    for path in (tmp_path / "none.log", tmp_path):
        with pytest.raises(SpecError, match="LOG"):
            read_log(path)
    with pytest.raises(SpecError, match="--log-kind"):
        read_log("step 1\n", "megatronn")


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "|",
        " ",
        "step ",
        "1 ",
        "[",
        '{"step": ',
        "Epoch 1: |",
        "a" * 70 + ": 1 ",
        "\x1b[",
        "1/",
        " 9%|[",
        "1/2   [",
    ],
)
def test_a_hostile_line_takes_no_time(unit: str) -> None:
    start_s = time.process_time()
    read_log((unit * (1_000_000 // len(unit)) + "\n").encode() * 3)
    assert time.process_time() - start_s < 10


def test_a_jump_in_the_numbers_of_steps_is_no_step_of_a_million() -> None:
    steps = read_log(megatron(1) + megatron(2) + megatron(10**12)).steps
    assert [(step.number, step.steps) for step in steps] == [(1, 1), (2, 1), (10**12, 1)]


def test_a_file_that_unpacks_to_far_more_than_logs_do_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b" " * (70 << 20), 9))
    with pytest.raises(SpecError, match="a log of at most 64 MiB"):
        read_log(path)


def test_a_compressed_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(megatron(1).encode()))
    assert read_log(path).steps == read_log(megatron(1)).steps


def test_a_loss_that_is_not_a_number_stays_one() -> None:
    text = '{"step": 1, "loss": NaN, "dt": 0.5}\n'
    assert math.isnan(read_log(text).steps[0].loss or 0.0)
    assert json.loads(text)["step"] == 1
    assert LoggedStep(number=1).loss is None


MOTIFS = ("a ", "a1", "a-1-", "111,", "node1-", "step: 1 loss: ", "iter 1: loss ", "Epoch 1: |1/", "[batch=1] ", "a_")
STARTS = (
    "",
    "Epoch 0:  3%|# | 90/3015 [1:42:42<55:37, ",
    "Epoch 0/2 ━━━╸━━ 90/3015 1:42:42 • 55:37:00 ",
    "step 1 | loss ",
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("run", ["1", "1e", "1.", " ", "━", "["])
def test_a_run_of_one_sign_where_a_number_should_be_takes_no_time(start: str, run: str) -> None:
    line = (start + run * (8000 // len(run)) + "\n").encode()
    start_s = time.process_time()
    read_log(line * 20)
    # 20 ms on an idle machine; a pattern that begins anew at every digit takes 10 s.
    assert time.process_time() - start_s < 1


@pytest.mark.parametrize("motif", MOTIFS)
def test_a_line_of_a_megabyte_takes_no_longer_than_a_short_one(motif: str) -> None:
    line = (motif * (1_000_000 // len(motif))).encode()
    took = []
    for _ in range(3):
        start = time.process_time()
        read_log(line)
        took.append(time.process_time() - start)
    # 10 ms on an idle machine; a pattern that tries every split takes seconds.
    assert min(took) < 0.1


def mlperf(key: str, time_ms: int, value: object, **metadata: object) -> str:
    table = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**table, 'metadata': metadata})}\n"


def test_a_log_of_mlperf_states_its_steps_by_samples_and_time_without_evaluations() -> None:
    log = read_log(
        mlperf("global_batch_size", 0, 32)
        + mlperf("max_sequence_length", 0, 8192)
        + mlperf("train_loss", 1_000_000, 7.5, samples_count=320, lr=1e-4)
        + mlperf("eval_start", 1_010_000, None, samples_count=480)
        + mlperf("eval_stop", 1_015_000, None, samples_count=480)
        + mlperf("train_loss", 1_025_000, 7.25, samples_count=640, lr=1e-4)
    )
    assert (log.kind, [step.number for step in log.steps]) == ("mlperf", [10, 20])
    assert (log.steps[1].seconds, log.steps[1].steps, log.steps[1].loss) == (2.0, 10, 7.25)
    assert log.steps[1].tokens == 32 * 8192
