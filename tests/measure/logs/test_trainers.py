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
