"""Trainers whose lines cover several steps, and do not say how many: lines in the forms that their releases print."""

from pathlib import Path

import pytest

from charllm.measure.logs import read_log
from charllm.measure.marks import Mark, compare_with_log, find_steps, read_marks
from charllm.measure.output import LOG_FILE

HEAD = (
    "[INFO|trainer.py:2519] ***** Running training *****\n"
    "[INFO|trainer.py:2520]   Num examples = {examples:,}\n"
    "[INFO|trainer.py:2521]   Num Epochs = 1\n"
    "[INFO|trainer.py:2526]   Total train batch size (w. parallel, distributed & accumulation) = 4\n"
    "[INFO|trainer.py:2528]   Total optimization steps = {total:,}\n"
)


def dicts(total: int, every: int, epoch_steps: int, *, quoted: bool, digits: int = 2) -> str:
    """Return the dicts of a run without a bar: numbers quoted with four digits, or epochs rounded to some."""
    lines = []
    for step in range(every, total + 1, every):
        epoch = step / epoch_steps
        if quoted:
            lines.append(f"{{'loss': '{3 - step / total:.4g}', 'learning_rate': '2e-05', 'epoch': '{epoch:.4g}'}}\n")
        else:
            lines.append(
                f"{{'loss': {3 - step / total:.4f}, 'learning_rate': 2e-05, 'epoch': {round(epoch, digits)}}}\n"
            )
    end = round(total / epoch_steps, 4)
    seconds = total * 0.021
    quote = "'" if quoted else ""
    return "".join(lines) + (
        f"{{'train_runtime': {quote}{seconds:.4g}{quote}, 'train_samples_per_second': {quote}190.5{quote}, "
        f"'train_steps_per_second': {quote}{1 / 0.021:.4g}{quote}, 'train_loss': {quote}2.5{quote}, "
        f"'epoch': {quote}{end:.4g}{quote}}}\n"
    )


@pytest.mark.parametrize("every", [1, 7, 10, 100])
@pytest.mark.parametrize("quoted", [True, False])
def test_a_dict_of_hugging_face_covers_its_logging_steps(every: int, quoted: bool) -> None:
    log = read_log(dicts(700, every, 350, quoted=quoted))
    assert [step.number for step in log.steps] == list(range(every, 701, every))
    assert {step.steps for step in log.steps} == {every}
    assert log.stated_step_s == pytest.approx(0.021, rel=1e-3)


def test_a_running_job_tells_its_steps_by_the_sizes_that_it_stated() -> None:
    text = HEAD.format(examples=1400, total=700) + dicts(700, 10, 350, quoted=True)
    cut = "".join(text.splitlines(keepends=True)[:15])
    assert [step.number for step in read_log(cut).steps] == [10 * (place + 1) for place in range(10)]


def test_coarse_epochs_leave_the_number_of_steps_a_dict_covers_to_the_whole_run() -> None:
    # Every epoch rounds to 0.0 or 0.01 of 100,000 steps.
    log = read_log(HEAD.format(examples=400_000, total=1000) + dicts(1000, 100, 100_000, quoted=False))
    assert [(step.number, step.steps) for step in log.steps][-1] == (1000, 100)


def test_a_rate_of_few_digits_does_not_say_the_steps_of_a_run() -> None:
    lines = "".join(f"{{'loss': 2.5, 'learning_rate': 2e-05, 'epoch': {epoch}}}\n" for epoch in (1.9, 3.79, 5.69))
    end = "{'train_runtime': 29130.8404, 'train_steps_per_second': 0.002, 'train_loss': 15.4, 'epoch': 9.48}\n"
    assert not read_log(lines + end).steps


def test_dicts_that_nothing_numbers_give_no_steps_and_say_so() -> None:
    lines = dicts(50, 10, 350, quoted=True).splitlines(keepends=True)[:-1]
    log = read_log("".join(lines))
    assert not log.steps
    assert any("how many steps each of its dicts covers" in warning for warning in log.warnings)


def test_the_bar_that_is_drawn_after_a_dict_has_its_step() -> None:
    text = "".join(
        f"\r {n}%|██ | {n - 3}/100 [00:0{n // 20}<00:04, 21.0it/s]"
        f"\r          {{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': 0.0}}\n"
        f"\r {n}%|██ | {n}/100 [00:0{n // 20}<00:04, 21.0it/s]"
        for n in range(10, 101, 10)
    )
    assert [(step.number, step.steps) for step in read_log(text).steps] == [(n, 10) for n in range(10, 101, 10)]


LIGHTNING = (
    "Epoch 0:  50%|█████     | 50/100 [00:01<00:01, 29.97it/s, v_num=0, train_loss=0.30]\r"
    "Epoch 0: 100%|██████████| 100/100 [00:03<00:00, 29.97it/s, v_num=0, train_loss=0.30]\n"
    "Epoch 1:  50%|█████     | 50/100 [00:01<00:01, 29.97it/s, v_num=0, train_loss=0.29]\r"
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 99.0it/s]\r"
    "Epoch 1: 100%|██████████| 100/100 [00:03<00:00, 29.97it/s, v_num=0, train_loss=0.28]\n"
)
RICH = (
    "\x1b[2KEpoch 0/1 \x1b[35m━━━━━━━━\x1b[0m\x1b[90m╺━━━━━━━\x1b[0m 50/100 \x1b[2m0:00:01 • 0:00:02\x1b[0m "
    "\x1b[2;4m29.97it/s\x1b[0m \x1b[3mtrain_loss: 0.30\x1b[0m\r"
    "\x1b[2KEpoch 0/1 ━━━━━━━━━━━━━━━━ 100/100 0:00:03 •        29.97it/s v_num: 0.000 train_loss: 0.30\r"
    "\x1b[2KEpoch 1/1 ━━━━━━━━━━━━━━━━ 50/100 0:00:01 • -:--:-- 29.97it/s train_loss: 0.29\n"
    "\x1b[2KEpoch 1/1 ━━━━━━━━━━━━━━━━ 100/100 0:00:03 • 0:00:00 29.97it/s train_loss: 0.28\n"
)


@pytest.mark.parametrize("text", [LIGHTNING, RICH])
def test_steps_of_a_lightning_bar_are_counted_over_epochs(text: str) -> None:
    log = read_log(text)
    assert log.kind == "lightning"
    assert [(step.number, step.steps, step.loss) for step in log.steps] == [
        (50, 50, 0.30), (100, 50, 0.30), (150, 50, 0.29), (200, 50, 0.28),
    ]  # fmt: skip
    assert [step.seconds for step in log.steps] == pytest.approx([1 / 29.97] * 4)


def record(folder: Path, kind: str, step_s: float, text: str) -> dict[str, list[Mark]]:
    rows = [f"{round(n * step_s * 1e9)},0,{kind}\n" for n in range(40)]
    (folder / "marks-0-77.csv").write_text("monotonic_ns,wall_ns,kind,name,value\n" + "".join(rows))
    (folder / LOG_FILE).write_text(text)
    return read_marks(folder)


def test_steps_of_the_optimizer_count_before_lines_of_the_log(tmp_path: Path) -> None:
    marks = record(tmp_path, "point,optimizer step,", 0.021, dicts(350, 7, 350, quoted=True))
    steps = find_steps(marks["0-77"])
    assert len(steps) == 39
    assert steps[0].end_s - steps[0].start_s == pytest.approx(0.021)
    assert compare_with_log(tmp_path, marks) is None


def test_two_sources_of_a_step_time_that_disagree_are_both_told(tmp_path: Path) -> None:
    marks = record(tmp_path, "step,,", 0.042, dicts(350, 7, 350, quoted=True))
    told = compare_with_log(tmp_path, marks)
    assert told is not None
    assert "0.042 s" in told
    assert "0.021 s" in told


FORMS: dict[str, tuple[str, dict[str, object]]] = {
    # DeepSpeed's engine of 2023 and of 2022, behind its own settings.
    "deepspeed": (
        "[2023-11-07 01:54:50,931] [INFO] [config.py:971:print]   train_batch_size ............. 64\n"
        + "".join(
            f"[2023-11-07 01:55:{n * 2:02d},711] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=4, "
            f"lr=[4.9e-05, 4.9e-05], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
            f"[2023-11-07 01:55:{n * 2:02d},714] [INFO] [timer.py:260:stop] "
            f"epoch=0/micro_step={n * 4}/global_step={n}, "
            "RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.7, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
            for n in (10, 20)
        ),
        {"number": 20, "steps": 10, "seconds": pytest.approx(2.0)},
    ),
    "deepspeed of 2022": (
        "".join(
            f"[2022-08-29 06:58:{n},176] [INFO] [timer.py:198:stop] 0/{n}, RunningAvgSamplesPerSec=232.7, "
            "CurrSamplesPerSec=227.4, MemAllocated=0.36GB, MaxMemAllocated=15.06GB\n"
            for n in (20, 30)
        ),
        {"number": 30, "steps": 10, "seconds": pytest.approx(1.0)},
    ),
    # Primus before and since its release 26.5, which names instant and mean figures anew.
    "primus": (
        "".join(
            f"[\x1b[32m20251202 09:12:{n % 60:02d}\x1b[0m][\x1b[36mrank-7/8\x1b[0m][\x1b[1mINFO \x1b[0m] \x1b[1m"
            f"[--------trainer.py:2560] : iteration {n}/ 5000 | consumed samples: {n * 128} | "
            "elapsed time per iteration (ms): 13372.8/13364.7 | hip mem usage/free/total/usage_ratio: "
            "153.81GB/102.17GB/255.98GB/60.09% | throughput per GPU (TFLOP/s/GPU): 567.6/568.0 | "
            "tokens per GPU (tokens/s/GPU): 9801.4/9807.3 | learning rate: 9.984820E-06 | global batch size: 128 | "
            "lm loss: 6.548988E-03 | loss scale: 1.0 | grad norm: 0.061 |\x1b[0m\n"
            for n in (126, 127)
        ),
        {"number": 127, "seconds": 13.3728, "gpu_tokens_per_s": 9801.4, "samples": 128, "loss": 6.548988e-3},
    ),
    "primus 26.5": (
        "[20260602 09:12:08][rank-7/8][INFO ] [--------trainer.py:2560] :  [2026-06-02 09:12:08.123456] "
        "iteration       12/      50 | consumed samples:         1536 | elapsed time per iteration (ms): 4005.1/4010.2"
        " | compute per GPU (TFLOP/s/GPU): 567.6 (avg 560.2) | tokens/s/GPU inst/harmonic mean: 16362.0/16340.9 | "
        "learning rate: 9.984820E-06 | global batch size:   128 | lm loss: 6.548988E+00 | loss scale: 1.0 |\n",
        {"number": 12, "seconds": 4.0051, "gpu_tokens_per_s": 16362, "flop_per_s": 567.6e12},
    ),
    "megatron-bridge": (
        "Step Time : 5.21s GPU utilization: 433.1MODEL_TFLOP/s/GPU\n [2025-08-19 12:00:10] iteration        2/"
        "      50 | consumed samples:          256 | elapsed time per iteration (ms): 5210.2 | "
        "throughput per GPU (TFLOP/s/GPU): 433.1 |"
        " energy per GPU (J/iter/GPU): 3400.0 | power per GPU (W/GPU): 652.6 | learning rate: 6.000000E-06 | "
        "global batch size:   128 | lm loss: 1.178000E+01 | loss scale: 1.0 | grad norm: 14.600 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n",
        {"number": 2, "seconds": pytest.approx(5.2102), "gpu_power_w": 652.6, "loss": 11.78},
    ),
    "nemo": (
        "mbs_128gbs/0 Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | "
        "max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | "
        "train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888\n",
        {"number": 45, "seconds": 6.08, "memory_bytes": 127785762816, "flop_per_s": pytest.approx(1.249e15)},
    ),
    "nanotron": (
        "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-78]: iteration: 1 / 15 | consumed_tokens: 512 | "
        "elapsed_time_per_iteration_ms: 4.71K | tokens_per_sec: 109 | tokens_per_sec_per_gpu: 109 | "
        "global_batch_size: 2 | lm_loss: 5.32 | lr: 0.00015 | model_tflops_per_gpu: 1.87e-05 | "
        "cuda_memory_allocated: 67.4M | cuda_max_memory_reserved: 520M | hd_total_memory_tb: 2.13T\n",
        {"number": 1, "seconds": pytest.approx(4.71), "memory_bytes": 520e6, "loss": 5.32},
    ),
    # Its rate of batches has two digits here; that of samples has four. Batches of an epoch begin anew, and count on.
    "llm foundry": (
        "".join(
            f"[epoch={epoch}][batch={batch}/5]:\n\t Train time/batch: {n}\n\t Train time/sample: {n * 1024}\n"
            f"\t Train time/batch_in_epoch: {batch - 1}\n\t Train time/token: {n * 7_313_623}\n"
            "\t Train loss/train/total: 8.4213\n\t Train throughput/batches_per_sec: 0.0027\n"
            "\t Train throughput/samples_per_sec: 2.7330\n\t Train throughput/tokens_per_sec: 19519.8\n"
            "\t Train memory/peak_reserved_mem: 40.1100\n\t Train ffn: <wandb.Image object at 0x711e4be2d700>\n"
            for epoch, batch, n in ((1, 4, 3), (1, 5, 4), (2, 1, 5))
        ),
        {"number": 6, "steps": 1, "seconds": pytest.approx(1024 / 2.733), "tokens": 7_313_623, "samples": 1024,
         "memory_bytes": pytest.approx(40.11e9)},
    ),
    "axolotl": (
        "{'loss': 1.1573, 'grad_norm': 0.4023, 'learning_rate': 2e-05, 'ppl': 3.18, 'memory/max_active (GiB)': 20.25, "
        "'memory/max_allocated (GiB)': 20.0, 'tokens/train_per_sec_per_gpu': 5312.4, 'epoch': 0.01}\n"
        "  1%|          | 1/134 [00:03<07:01,  3.17s/it]\n",
        {"number": 1, "loss": 1.1573, "gpu_tokens_per_s": 5312.4, "memory_bytes": 20.25 * 2**30},
    ),
    # The page of LLaMA-Factory logs each dict a second time.
    "llama-factory": (
        HEAD.format(examples=1388, total=1041)
        + "".join(
            f"[INFO|2025-02-04 17:2{n // 10}:02] llamafactory.train.callbacks:143 >> {{'loss': 1.5321, "
            f"'learning_rate': 4.5000e-06, 'epoch': {n / 347:.2f}, 'throughput': 3020.50}}\n"
            f"{{'loss': 1.5321, 'grad_norm': 3.2, 'learning_rate': 4.5e-06, 'epoch': {n / 347:.2f}, "
            f"'num_input_tokens_seen': {n * 18_000}}}\n"
            for n in (10, 20, 30)
        ),
        {"number": 30, "steps": 10, "tokens": 18_000},
    ),
    "llama-factory's trainer_log.jsonl": (
        "".join(
            f'{{"current_steps": {n}, "total_steps": 1041, "loss": 1.5321, "lr": 4.5e-06, "epoch": 0.02882, '
            f'"percentage": 0.96, "elapsed_time": "0:{n // 10:02d}:02", "remaining_time": "1:46:32", '
            f'"throughput": 3020.5, "total_tokens": {n * 18_000}}}\n'
            for n in (10, 20, 30)
        ),
        {"number": 30, "steps": 10, "seconds": 6.0, "tokens": 18_000, "learning_rate": 4.5e-06},
    ),
    # The speed that ms-swift states is the mean since it began, a slow first step included.
    "ms-swift": (
        "".join(
            f"{{'loss': '0.3605', 'grad_norm': '1.021', 'learning_rate': '5e-05', 'token_acc': '0.9222', "
            f"'epoch': '{n / 31:.4g}', 'global_step/max_steps': '{n}/40', 'elapsed_time': '{elapsed}', "
            f"'remaining_time': '44m 41s', 'memory(GiB)': '11.15', 'train_speed(s/it)': '{speed}'}}\n"
            for n, elapsed, speed in ((1, "1m 40s", 100.0), (5, "6m 20s", 76.0), (10, "12m 10s", 73.0))
        ),
        {"number": 10, "steps": 5, "seconds": 70.0, "memory_bytes": 11.15 * 2**30},
    ),
    "ms-swift's logging.jsonl": (
        "".join(
            f'{{"loss": 1.47, "learning_rate": 2e-06, "epoch": 0.01, "global_step/max_steps": "{n}/94", '
            f'"elapsed_time": "{2 * n}s", "memory(GiB)": 4.87, "train_speed(iter/s)": 0.5}}\n'
            for n in (1, 5, 10)
        ),
        {"number": 10, "steps": 5, "seconds": 2.0, "memory_bytes": 4.87 * 2**30},
    ),
    "maxtext": (
        "".join(
            f"I0601 22:14:5{n} metric_logger.py:181] completed step: {n}, seconds: 3.443, TFLOP/s/device: 413.433, "
            "Tokens/s/device: 7138.890, total_weights: 196608, loss: 2.136\n"
            for n in (1, 2)
        ),
        {"number": 2, "steps": 1, "seconds": 3.443, "gpu_tokens_per_s": 7138.89, "loss": 2.136},
    ),
}  # fmt: skip
"""Lines in the form that each program prints: its last report."""


@pytest.mark.parametrize("program", FORMS)
def test_logs_in_the_form_of_each_program_are_read(program: str) -> None:
    text, expected = FORMS[program]
    log = read_log(text)
    assert {name: getattr(log.steps[-1], name) for name in expected} == expected


def test_an_engine_below_a_trainer_does_not_hide_its_losses() -> None:
    engine, _expected = FORMS["deepspeed"]
    log = read_log(engine + FORMS["primus 26.5"][0])
    assert (log.kind, log.settings["global_batch_size"]) == ("megatron", 64)
