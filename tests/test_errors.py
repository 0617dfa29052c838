import pickle

from charllm.errors import DoesNotFit, MissingExtra, SpecError, unknown_name


def test_a_spec_error_names_field_asked_and_possible() -> None:
    error = SpecError("parallelism.tp", 3, "a divisor of 96")
    assert str(error) == "parallelism.tp: got 3; expected a divisor of 96"
    assert error.exit_code == 2


def test_an_unknown_name_comes_with_the_nearest_ones() -> None:
    assert "did you mean gpt3-175b" in str(unknown_name("model", "gpt3-175", ["gpt3-175b", "llama3-8b"]))


def test_a_long_list_of_names_is_cut() -> None:
    error = unknown_name("model", "zzz", [f"name{index}" for index in range(100)])
    assert "100 in all" in str(error)


def test_what_was_asked_is_cut_when_long() -> None:
    assert len(str(SpecError("field", "x" * 10_000, "less"))) < 200


def test_not_fitting_has_its_own_exit_code() -> None:
    assert DoesNotFit.exit_code == 3


def test_a_missing_extra_is_named_in_one_line_also_across_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingExtra("queries need duckdb", "store")))
    assert str(error) == "queries need duckdb: pip install 'charllm[store]'"
    assert error.exit_code == 2
