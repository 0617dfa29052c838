"""Files of other programs are known by their keys, and named where they are not read."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from charllm.errors import SpecError
from charllm.spec.readers import read_foreign
from charllm.spec.readers.programs import READERS
from charllm.spec.readers.recognize import SIGNS, Sign, find_program, list_programs


def table_of(sign: Sign) -> dict[str, object]:
    """Build the smallest file that bears a sign."""
    table: dict[str, object] = {}
    for key in sign.keys:
        path, _, word = key.partition("=")
        if path.startswith("!"):
            continue
        place = table
        *above, last = path.split(".")
        for part in above:
            place = place.setdefault(part, {})  # type: ignore[assignment]
        place[last] = word or 1
    return table


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: f"{sign.program}: {' '.join(sign.keys)}")
def test_each_sign_tells_its_program(sign: Sign) -> None:
    assert find_program(table_of(sign)) == sign.program


def test_over_twenty_programs_are_known() -> None:
    assert len(list_programs()) > 20


@pytest.mark.parametrize("program", [name for name in list_programs() if name not in READERS])
def test_a_file_of_a_program_that_is_not_read_is_refused_by_name(program: str, tmp_path: Path) -> None:
    sign = next(sign for sign in SIGNS if sign.program == program)
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(table_of(sign)))
    with pytest.raises(SpecError) as caught:
        read_foreign(str(path))
    assert f"a file of {program}" in str(caught.value)


def test_an_inference_file_of_nemo_is_refused_as_one_that_trains_nothing(tmp_path: Path) -> None:
    path = tmp_path / "inference.yaml"
    model = {"num_layers": 8, "hidden_size": 64, "data": {"test_ds": {"tokens_to_generate": 32}}}
    path.write_text(yaml.safe_dump({"trainer": {"devices": 8}, "model": model, "inference": {"greedy": True}}))
    with pytest.raises(SpecError, match="nothing is trained"):
        read_foreign(str(path))


@pytest.mark.parametrize("module", ["programs", "finetuning", "megatron", "nemo", "recipes", "torchtitan"])
def test_each_reader_can_be_the_first_that_is_imported(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import charllm.spec.readers.{module}"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
