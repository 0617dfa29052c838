"""The artifact's inference files, as what they are."""

from charllm.reproduce.figures.strategies import FIGURES
from charllm.reproduce.paper import INFERENCE, LORA, STUDIES, runs_of


def test_inference_files_are_forward_passes_and_part_of_the_reproduction() -> None:
    runs = runs_of(INFERENCE)
    assert INFERENCE in STUDIES
    assert len(runs) == 70
    assert all(run["parallelism"]["schedule"] == "forward-only" for run in runs.values())
    assert not any("mixtral" in name for name in runs)


def test_mixtral_files_among_them_are_lora_runs_and_the_figure_says_so() -> None:
    (figure,) = [one for one in FIGURES if one.study == INFERENCE]
    assert "Mixtral files start LoRA training" in figure.question
    assert "nothing is generated" in figure.question
    assert len(runs_of(LORA, starts="mixtral")) >= 44
