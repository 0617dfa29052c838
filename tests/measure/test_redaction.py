"""Secrets in commands and environments are not recorded."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.measure.redaction import describe_command, describe_environment, redact_shell_words


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["run", "--api-key=abc"], ["run", "--api-key=***"]),
        (["run", "--api-key", "abc", "--lr", "3"], ["run", "--api-key", "***", "--lr", "3"]),
        (["env", "HF_TOKEN=abc", "python"], ["env", "HF_TOKEN=***", "python"]),
        (["bash", "-c", "export HF_TOKEN=abc; run"], ["bash", "-c", "export HF_TOKEN=***"]),
        (["bash", "-c", "run --a=b --password abc"], ["bash", "-c", "run --a=b --password ***"]),
        (["curl", "-H", "Authorization: Bearer abc"], ["curl", "-H", "Authorization:***"]),
        (["run", '{"client_secret": "abc"}'], ["run", '{"client_secret":***']),
        (["git", "clone", "https://me:abc@host/x"], ["git", "clone", "https://***@host/x"]),
        (["get", "https://host/x?token=abc"], ["get", "https://host/x?token=***"]),
        (["run", "--db-passwd", "abc"], ["run", "--db-passwd", "***"]),
        (["run", "password:", "abc", "--lr", "3"], ["run", "password:***", "***", "--lr", "3"]),
        (["login", "password", "abc"], ["login", "password", "***"]),
        (["run", "data/keys/train.py", "3"], ["run", "data/keys/train.py", "3"]),
        (["run", "--tokenizer", "gpt2"], ["run", "--tokenizer", "gpt2"]),
        (["python", "train.py", "--lr=0.1"], ["python", "train.py", "--lr=0.1"]),
    ],
)
def test_secrets_in_a_command_are_blotted_out(command: list[str], shown: list[str]) -> None:
    assert describe_command(command, {}) == shown


FORMS = (
    "--{name}={secret}",
    "--{name} {secret}",
    "{name}={secret}",
    "x {name}: {secret} y",
    "{{'{name}': '{secret}'}}",
)


@given(
    name=st.sampled_from(["api-key", "HF_TOKEN", "password", "client_secret", "AUTH", "wandb_api_key", "DB_PWD"]),
    form=st.sampled_from(FORMS),
    secret=st.text(string.ascii_letters + string.digits + "+/=_-.", min_size=8, max_size=40).map(lambda t: f"Q7{t}"),
    spoken=st.booleans(),
)
def test_no_form_of_a_secret_is_shown(name: str, form: str, secret: str, spoken: bool) -> None:
    text = form.format(name=name, secret=secret)
    command = ["bash", "-c", text] if spoken else text.split(" ")
    assert secret not in " ".join(describe_command(["run", *command, "--steps", "3"], {}))


def test_the_value_of_a_secret_variable_is_blotted_out_wherever_it_stands() -> None:
    environment = {"HF_TOKEN": "hf_abcdef", "NCCL_NET": "x-hf_abcdef-y", "MY_KEY": "1", "CUDA_X": "1"}
    assert describe_command(["run", "hf_abcdef", "a/hf_abcdef/b"], environment) == ["run", "***", "a/***/b"]
    assert describe_environment(environment) == {"CUDA_X": "1", "NCCL_NET": "x-***-y"}


def test_only_variables_that_shape_a_run_are_kept() -> None:
    environment = {
        "NCCL_DEBUG": "INFO",
        "NCCL_NET_KEY": "abc",
        "TORCH_HUB_TOKEN": "abc",
        "CUDA_SECRET_PATH": "abc",
        "SLURM_JOB_ID": "12",
        "RANK": "3",
        "HOME": "/home/me",
        "WANDB_API_KEY": "abc",
        "NCCL_PROXY": "http://me:abc@host",
    }
    kept = {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "12", "RANK": "3", "NCCL_PROXY": "http://***@host"}
    assert describe_environment(environment) == kept


def test_words_of_a_shell_stay_as_they_are_typed_unless_they_hold_a_secret() -> None:
    typed = "charllm train {spec} --steps {steps}  'a b'"
    assert redact_shell_words(typed, {}) == typed
    assert redact_shell_words("run 'a b' --token x", {}) == "run 'a b' --token '***'"
