"""What a Python recipe becomes, as far as it is data."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.errors import SpecError
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.recipes import read_recipe
from charllm.spec.readers.recipes.classes import _rows, find_class, find_version

NEMO2 = """
import nemo_run as run
SEQ = 4096 * 2

def model():
    return run.Config(LlamaModel, config=run.Config(Llama3Config8B))

def trainer(tensor_parallelism: int = 1, num_nodes: int = 1, num_gpus_per_node: int = 8):
    strategy = run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=tensor_parallelism,
        sequence_parallel=tensor_parallelism > 1,
        ddp=run.Config(DistributedDataParallelConfig, overlap_grad_reduce=True, grad_reduce_in_fp32=True),
    )
    return run.Config(nl.Trainer, devices=num_gpus_per_node, num_nodes=num_nodes, plugins=bf16_mixed(),
                      strategy=strategy)

def pretrain_recipe(num_nodes: int = 2, performance_mode: bool = False):
    recipe = run.Partial(
        fn,
        model=model(),
        trainer=trainer(tensor_parallelism=4, num_nodes=num_nodes),
        data=run.Config(MockDataModule, seq_length=SEQ, global_batch_size=512, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
    if performance_mode:
        recipe.trainer.strategy.tensor_model_parallel_size = 8
    return recipe
"""
BRIDGE = """
def llama3_8b_pretrain_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = 8192
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    cfg.mixed_precision = _perf_precision("fp8_cs")
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    cfg.model.num_layers = layers_of(cfg)
    return cfg

def other_config():
    return llama3_8b_pretrain_config()
"""
REGISTRY = """
def llama3_70b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B"),
        training=TrainingConfig(local_batch_size=8, seq_len=8192, steps=10),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
        activation_checkpoint=FullAC.Config(),
        optimizer=default_adamw(lr=1e-4),
        compile=CompileConfig(enable=True),
    )

def llama3_70b_async():
    config = llama3_70b()
    config.parallelism.enable_async_tensor_parallel = True
    return config
"""


def reading_of(text: str, function: str = "") -> Reading:
    return read_recipe(text, "recipes/some.py", function)


def test_a_recipe_of_nemo_2_is_followed_through_its_functions() -> None:
    reading = reading_of(NEMO2)
    request = reading.request
    assert (request["model"]["layers"], request["model"]["vocab"]) == (32, 128_256)
    assert (request["parallelism"]["tp"], request["parallelism"]["sp"], request["parallelism"]["zero"]) == (4, True, 1)
    assert (request["training"]["seq_length"], request["training"]["global_batch_size"]) == (8192, 512)
    assert request["training"]["precision"] == "bf16"
    assert (reading.nodes, reading.gpus_per_node) == (2, 8)
    assert not reading.not_understood


def test_a_condition_that_the_file_decides_is_followed() -> None:
    changed = NEMO2.replace("performance_mode: bool = False", "performance_mode: bool = True")
    assert reading_of(changed).request["parallelism"]["tp"] == 8


def test_a_condition_that_it_does_not_decide_is_listed() -> None:
    changed = NEMO2.replace("if performance_mode", "if torch.cuda.is_available()")
    reading = reading_of(changed)
    assert reading.request["parallelism"]["tp"] == 4
    assert [setting.line for setting in reading.not_understood] == [27]


def test_a_recipe_of_bridge_builds_on_a_repository() -> None:
    reading = reading_of(BRIDGE, "llama3_8b_pretrain_config")
    request = reading.request
    assert request["framework"] == "megatron-bridge"
    assert request["model"]["hidden"] == 4096
    assert request["training"]["precision"] == "fp8"
    # A CommOverlapConfig overlaps replicas unless it says otherwise.
    assert request["parallelism"]["overlap"] == ["tp", "dp"]
    listed = {setting.line: setting.text for setting in (*reading.not_understood, *reading.unmodelled)}
    assert "_pretrain_common()" in listed[3]
    # What that function would set is asked for, all at once.
    assert set(reading.missing) == {"parallelism.pp", "parallelism.cp"}
    assert "layers_of(cfg)" in listed[12]


def test_a_model_that_is_not_known_is_asked_for() -> None:
    changed = BRIDGE.replace("meta-llama/Meta-Llama-3-8B", "acme/Nova-9B").replace("llama3_8b_pretrain", "nova")
    assert reading_of(changed, "nova_config").model_id == "acme/Nova-9B"


def test_one_of_several_functions_has_to_be_named() -> None:
    with pytest.raises(SpecError, match="llama3_8b_pretrain_config, other_config"):
        reading_of(BRIDGE)
    with pytest.raises(SpecError, match="one of"):
        reading_of(BRIDGE, "third_config")
    assert reading_of(BRIDGE, "other_config").request["parallelism"]["tp"] == 2


def test_a_registry_of_torchtitan_is_a_job() -> None:
    request = reading_of(REGISTRY, "llama3_70b_async").request
    assert request["model"]["layers"] == 80
    assert (request["parallelism"]["tp"], request["parallelism"]["overlap"]) == (8, ["tp", "dp"])
    assert (request["training"]["micro_batch_size"], request["training"]["recompute"]) == (8, "full")


@pytest.mark.parametrize("name", _rows())
def test_every_class_has_its_sizes(name: str) -> None:
    settings_of = find_class(name)
    assert settings_of is not None
    assert settings_of["num_layers"] > 1
    assert settings_of["vocab_size"] > 30_000


def test_a_version_is_spelled_in_several_ways() -> None:
    assert find_version("nemotron4_15b") == find_class("Nemotron4Config15B")
    assert find_version("llama-3.1-8b") == find_class("Llama31Config8B")
    assert find_version("nova_9b") is None


@pytest.mark.parametrize(
    "text",
    ["def f(:", "x = 1", "def f():\n    return 3", "while 1:\n    pass", "def f():\n    return f()", "\0", "(" * 5000],
)
def test_a_file_that_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        reading_of(text)


def test_nothing_is_run_and_nothing_grows() -> None:
    grows = "def a_config():\n    x = [0] * 10\n" + "    x = x + x\n" * 60
    bomb = grows + "    cfg = f()\n    cfg.model.num_layers = x\n"
    start = time.process_time()
    with pytest.raises(SpecError):
        reading_of(bomb + "    import os; os.abort()\n    return cfg\n")
    assert time.process_time() - start < 1


LINES = st.sampled_from([line for text in (NEMO2, BRIDGE, REGISTRY) for line in text.splitlines()])


@settings(deadline=None, max_examples=150)
@given(lines=st.lists(LINES, max_size=25), text=st.text(max_size=40))
def test_any_source_gives_a_request_or_a_spec_error_at_once(lines: list[str], text: str) -> None:
    start = time.process_time()
    for content in ("\n".join(lines), text, NEMO2 + text):
        try:
            assert "parallelism" in reading_of(content).request
        except SpecError:
            continue
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2 if GPUS > 4 else 1", 2),
        ("-GPUS + 12", 4),
        ("4 if GPUS > 4 and not SMALL else 1", 4),
        ("4 if GPUS < 4 or SMALL else 2", 2),
        ("unknown(GPUS) if GPUS > 100 else 8", 8),
    ],
)
def test_arithmetic_and_conditions_of_what_is_known_are_worked_out(value: str, found: int) -> None:
    constants = "GPUS: int = 8\nSMALL = False\n"
    reading = read_recipe(
        constants + BRIDGE.replace("_parallel_size = 2", f"_parallel_size = {value}"),
        "recipe.py",
        "llama3_8b_pretrain_config",
    )
    assert reading.request["parallelism"]["tp"] == found


@pytest.mark.parametrize("value", ["unknown(3)", "GPUS / 0", "1 if unknown() else 2", "-'a'"])
def test_what_cannot_be_worked_out_is_named(value: str) -> None:
    text = "GPUS = 8\n" + BRIDGE.replace("_parallel_size = 2", f"_parallel_size = {value}")
    reading = read_recipe(text, "recipe.py", "llama3_8b_pretrain_config")
    assert any("tensor_model_parallel_size" in str(each) for each in reading.unmodelled)
    assert reading.request["parallelism"]["tp"] == 1


COMMON = """
BATCH = 32

def _pretrain_common():
    optimizer, scheduler = distributed_fused_adam_with_cosine_annealing(max_lr=3e-4)
    cfg = ConfigContainer(
        model=None,
        train=TrainingConfig(train_iters=300000, global_batch_size=BATCH, micro_batch_size=2),
        optimizer=optimizer,
        ddp=DistributedDataParallelConfig(
            overlap_grad_reduce=True, overlap_param_gather=True, use_distributed_optimizer=True
        ),
        comm_overlap=None,
        mixed_precision="bf16_mixed",
    )
    return cfg
"""
USER = """
from acme.recipes.common import BATCH, _pretrain_common

def llama3_8b_pretrain_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained(REPOSITORY).to_megatron_provider(load_weights=False)
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.seq_length = 8192
    return cfg

REPOSITORY = "meta-llama/Meta-Llama-3-8B"
"""


def checkout(folder: Path, text: str = USER) -> Reading:
    (folder / "acme" / "recipes" / "llama").mkdir(parents=True)
    (folder / "acme" / "recipes" / "common.py").write_text(COMMON)
    path = folder / "acme" / "recipes" / "llama" / "llama3.py"
    path.write_text(text)
    return read_recipe(text, str(path), "llama3_8b_pretrain_config")


def test_functions_and_constants_of_other_files_of_a_checkout_are_followed(tmp_path: Path) -> None:
    reading = checkout(tmp_path)
    assert (reading.missing, reading.unmodelled) == ({}, ())
    training = reading.request["training"]
    assert (training["global_batch_size"], training["micro_batch_size"], training["precision"]) == (32, 2, "bf16")
    assert reading.request["model"]["layers"] == 32
    assert reading.request["parallelism"]["overlap"] == ["dp"]


def test_a_recipe_that_another_file_defines_is_found_by_its_import(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "real.py").write_text(BRIDGE)
    alias = "from acme.real import llama3_8b_pretrain_config as pretrain\n"
    assert read_recipe(alias, str(tmp_path / "alias.py"), "pretrain").request["training"]["global_batch_size"] == 128


def test_without_the_file_of_its_base_a_recipe_asks_for_what_that_sets() -> None:
    assert set(reading_of(USER, "llama3_8b_pretrain_config").missing) == {
        "parallelism.tp", "parallelism.cp", "training.global_batch_size", "training.micro_batch_size",
        "training.precision",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "overlap"),
    [
        ("cfg.ddp.overlap_grad_reduce = False", ["dp"]),
        ("cfg.ddp.overlap_grad_reduce = False\n    cfg.ddp.overlap_param_gather = False", []),
        ("cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)", ["dp"]),
        ("cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)\n    "
         "cfg.model.virtual_pipeline_model_parallel_size = 2", ["dp", "pp"]),
        ("cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False, overlap_p2p_comm=False)\n    "
         "cfg.model.virtual_pipeline_model_parallel_size = 2", ["dp"]),
        ("cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False, overlap_grad_reduce=False)\n    "
         "cfg.ddp.overlap_grad_reduce = cfg.ddp.overlap_param_gather = False", []),
    ],
)  # fmt: skip
def test_overlap_that_a_recipe_switches_off_is_off(lines: str, overlap: list[str], tmp_path: Path) -> None:
    reading = checkout(tmp_path, USER.replace("    return cfg", f"    {lines}\n    return cfg"))
    assert reading.request["parallelism"]["overlap"] == overlap


@pytest.mark.parametrize(
    ("line", "rank"),
    [('default_peft_config("lora")', 32), ('default_peft_config("lora", dim=8)', 8), ("LoRA(dim=16)", 16),
     ("LoRA()", 32), ("default_peft_config(None)", None), ("None", None)],
)  # fmt: skip
def test_adapters_of_a_recipe_are_trained(line: str, rank: int | None, tmp_path: Path) -> None:
    reading = checkout(tmp_path, USER.replace("    return cfg", f"    cfg.peft = {line}\n    return cfg"))
    assert reading.request["training"].get("lora_rank") == rank
    assert not reading.unmodelled


def test_other_adapters_are_refused(tmp_path: Path) -> None:
    line = 'cfg.peft = default_peft_config("dora")'
    reading = checkout(tmp_path, USER.replace("    return cfg", f"    {line}\n    return cfg"))
    assert [setting.reason for setting in reading.unmodelled] == ["these adapters"]
