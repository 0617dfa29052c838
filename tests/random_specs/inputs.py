"""Random inputs of the command line: right ones, slightly wrong ones and hostile ones, each drawn from a seed."""

import json
import math
import os
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from charllm.api.keywords import FIELDS
from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.catalog.tables import KINDS, entries
from charllm.cli.spec_flags import spellings
from charllm.errors import SpecError
from charllm.spec.fields import Rule, rules
from charllm.spec.hardware import Cluster
from charllm.spec.run import RunSpec
from charllm.units import SUFFIXES

JSON = "--json"
NASTY = (
    "", "0", "-1", "1", "2", "3", "7", "64", "1e9", "-1e9", "1e-9", "1e308", "-0.0", "nan", "inf", "-inf", "9" * 25,
    "9" * 400, "9" * 5000, "0x10", "1_000", "1e400", "2.5", "true", "false", "''", '""', "[]", "{}", "[1,2]", "{a=1}",
    "none", "null", "x", "é", "\u202e", "\U0001d7d8", "a" * 300, "1979-05-27", "1979-05-27T07:32:00Z", r'"\u0000"',
    "[" * 40, "[" * 40 + "]" * 40, ",", "=", "..", " ", "\t", "a\nb", "\x1b[31m", "\udcff", "/dev/zero", "/dev/stdin",
    "/", ".", "$(true)", "%s", "{0}", "charllm-ppt-h200", "llama3-8b", "megatron", "1f1b", "1,2", "8x4", "full:3",
    "selective:mlp",
)  # fmt: skip
MODELS = ("llama3-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v2-lite", "gpt2", "llama3-70b")
CLUSTERS = ("h200x1", "h200x8", "h100x8", "a100x8", "b200x8", "charllm-ppt-h200", "charllm-ppt-mi250")
FLAGS = (
    *(flag for word in FIELDS for flag in spellings(word)),
    "--model", "--cluster", "--framework", "--recompute", "--overlap", "--layers-per-stage", "--steps", "--seconds",
    "--rank", "--fsdp", "--sp", "--no-sp", "--ignore-memory", "--from", "--set", "--out", "--perfetto", "--tp=2",
)  # fmt: skip
SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=2; PP=${PP:-1}
if [ "$1" == "big" ]; then LAYERS=96; else LAYERS=24; fi
GPT_ARGS="--num-layers $LAYERS --hidden-size 2048 --num-attention-heads 16 --seq-length 2048
  --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size $((16*4)) --vocab-size 50257"
MODEL=(--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP --bf16 --sequence-parallel
  --use-distributed-optimizer --swiglu --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 2)
case $MODE in a) X=1;; *) X=2;; esac
for i in 1 2; do echo $i; done
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py $GPT_ARGS ${MODEL[@]} --recompute-activations 2>&1 | tee log
"""
YAML = """name: megatron_gpt
trainer: {devices: 8, num_nodes: 1, precision: bf16, max_steps: 100}
model:
  micro_batch_size: 1
  global_batch_size: 16
  tensor_model_parallel_size: &tp 2
  pipeline_model_parallel_size: 1
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 12
  hidden_size: 1024
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  optim: {name: distributed_fused_adam, lr: 1e-4}
  sequence_parallel: true
  context_parallel_size: *tp
  vocab_size: 50304
"""
CONFIGS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
     "num_hidden_layers": 12, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096},
    {"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16,
     "num_hidden_layers": 8, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
     "num_experts_per_tok": 2, "sliding_window": None},
    {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024},
    {"model_type": "deepseek_v3", "hidden_size": 1024, "intermediate_size": 4096, "moe_intermediate_size": 512,
     "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 8, "vocab_size": 32000,
     "kv_lora_rank": 128, "q_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
     "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1},
)  # fmt: skip
SPEC = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}, "training": {"global_batch_size": 16}}
STUDY = """about = "x"
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2] }
axes.mbs = { field = "training.micro_batch_size", values = [1, 2] }
"""


class Input(NamedTuple):
    """Words of a command line; {0} in a word is the path of a file with `content`, where there is one."""

    words: tuple[str, ...]
    content: bytes | None = None
    suffix: str = ""

    @property
    def wants_json(self) -> bool:
        """Tell whether standard output has to be JSON."""
        return JSON in self.words and self.words[0] == "simulate"


@lru_cache(maxsize=1)
def field_rules() -> dict[str, Rule]:
    """Return the rule of every field of a run by its dotted path."""
    found: dict[str, Rule] = {}
    _collect(resolve_run(SPEC), "", found)
    return found


@lru_cache(maxsize=1)
def field_paths() -> tuple[str, ...]:
    """List every field of a run by its dotted path, in SI and in other units."""
    spelled = []
    for path in field_rules():
        stem, _, unit = path.rpartition("_")
        others = [suffix for suffix, (si, _factor) in SUFFIXES.items() if si == unit and suffix != unit]
        spelled += [path, *(f"{stem}_{suffix}" for suffix in others)]
    return tuple(spelled)


def _collect(settings: object, path: str, found: dict[str, Rule]) -> None:
    names = rules(type(settings)) if not isinstance(settings, RunSpec) else {}
    for entry in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, entry.name)
        if is_dataclass(value):
            _collect(value, f"{path}{entry.name}.", found)
        elif entry.name in names:
            found[f"{path}{entry.name}"] = names[entry.name]


def draw_input(random: Random) -> Input:
    """Draw an input of any kind."""
    return random.choice((_flags, _settings, _edges, _toml, _json, _yaml, _shell, _strange_file, _other))(random)


def _base(random: Random) -> list[str]:
    return ["simulate", "--model", random.choice(MODELS), "--cluster", random.choice(CLUSTERS), JSON]


def _value(random: Random) -> str:
    if random.random() < 0.5:
        return random.choice(NASTY)
    if random.random() < 0.5:
        return str(random.choice((1, 2, 4, 8, 16, 128, 1024, 4096, 10**6, 10**8)))
    return repr(random.choice((1, -1)) * 10 ** random.uniform(-12, 15))


def _flags(random: Random) -> Input:
    words = _base(random)
    for _ in range(random.randint(1, 4)):
        flag = random.choice(FLAGS)
        words += [flag] if random.random() < 0.2 else [flag, _value(random)]
    return Input(_harmless(words))


def _harmless(words: list[str]) -> tuple[str, ...]:
    """Keep what a test writes inside nowhere: files are asked for where none can be made."""
    kept = list(words)
    for place, word in enumerate(words[:-1]):
        if word in ("--out", "--perfetto", "--timeline"):
            kept[place + 1] = f"/dev/null/{words[place + 1].replace('/', '_')}"
    return tuple(word for word in kept if word not in ("--out", "--perfetto", "--timeline") or word is not kept[-1])


def _settings(random: Random) -> Input:
    words = _base(random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        path = random.choice(field_paths())
        if random.random() < 0.1:
            path = random.choice((path + ".x", path[:-1], path.upper(), path.replace(".", ".."), "base", "model.base"))
        words += ["--set", f"{path}={_value(random)}"]
    return Input(tuple(words))


def _edges(random: Random) -> Input:
    """Set fields to what they may just hold: their ends, and anything between."""
    return Input((*_base(random), "--ignore-memory", *edge_settings(random)))


def edge_settings(random: Random) -> list[str]:
    """Draw some --set words whose values are inside the range of their fields, often at its ends."""
    words: list[str] = []
    for path in random.sample(sorted(field_rules()), random.choice((1, 1, 2, 4))):
        words += ["--set", f"{path}={json.dumps(_allowed(random, field_rules()[path]))}"]
    return words


def _allowed(random: Random, rule: Rule) -> Any:
    if rule.kind == "bool":
        return random.choice((True, False))
    if rule.options:
        return random.choice(rule.options) if rule.kind == "text" else random.sample(rule.options, random.randint(0, 2))
    if rule.kind in ("text", "words"):
        return random.choice(("", "x", "M*-E", "tp-cp-ep-dp-pp"))
    low, high = rule.low, rule.high
    between = math.exp(random.uniform(math.log(max(low, 1e-12)), math.log(high))) if high > 0 else low
    value = random.choice((low, high, between, between, random.uniform(low, high)))
    whole = rule.kind in ("int", "ints")
    value = min(high, max(low, round(value) if whole else value))
    return [int(value)] * random.randint(0, 3) if rule.kind == "ints" else int(value) if whole else value


def _mutated(random: Random, text: str) -> bytes:
    """Spoil a text in some places, or leave it."""
    data = text
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        lines = data.split("\n")
        place = random.randrange(len(lines))
        cut = random.randrange(len(data) + 1)
        change = random.randrange(7)
        if change == 0:
            data = data[:cut] + random.choice(NASTY) + data[cut + random.randint(0, 3) :]
        elif change == 1:
            data = data[:cut]
        elif change == 2:
            data = "\n".join([*lines[:place], lines[random.randrange(len(lines))], *lines[place:]])
        elif change == 3:
            data = "\n".join(lines[:place] + lines[place + 1 :])
        elif change == 4:
            data = data[:cut] + random.choice("{}[]()\"'`$\\:=,#&*|;<>-\t\r\n\0") + data[cut:]
        elif change == 5:
            words = data.split(" ")
            words[random.randrange(len(words))] = random.choice(NASTY)
            data = " ".join(words)
        else:
            data = data.replace(random.choice("0123456789"), random.choice(("9", "-", "0", "99999999", ".", "e")), 1)
    raw = data.encode("utf-8", "surrogateescape")
    if random.random() < 0.05:
        raw = random.choice((b"\xef\xbb\xbf" + raw, raw.replace(b"\n", b"\r\n"), raw + b"\xff", raw + b"\0", raw * 50))
    return raw


def _plain_toml(random: Random) -> str:
    lines = [f'model = "{random.choice(MODELS)}"', f'cluster = "{random.choice(CLUSTERS)}"']
    lines += [f"{path} = {_value(random)}" for path in random.sample(field_paths(), random.randint(0, 3))]
    if random.random() < 0.3:
        lines = [f"[model]\nbase = '{random.choice(MODELS)}'\n{line}" for line in lines[:1]] + lines[1:]
    return "\n".join(lines) + "\n[training]\nglobal_batch_size = 64\n"


def _toml(random: Random) -> Input:
    words = random.choice((
        ("simulate", "{0}", JSON),
        ("simulate", "--model", "{0}", "--cluster", "h200x8", JSON),
        ("simulate", "--model", "llama3-8b", "--cluster", "{0}", JSON),
    ))  # fmt: skip
    text = (
        _plain_toml(random)
        if words[1] == "{0}"
        else random.choice(('base = "h200x8"\n', 'base = "gpt2"\nlayers = 4\n'))
    )
    return Input(words, _mutated(random, text), ".toml")


def _json(random: Random) -> Input:
    config = dict(random.choice(CONFIGS))
    for _ in range(random.randint(0, 2)):
        config[random.choice(list(config))] = random.choice((None, 0, -1, 1.5, 10**30, "x", [], {}, True, [1], 2**40))
    words = random.choice((
        ("simulate", "--model", "{0}", "--cluster", "h200x8", JSON),
        ("simulate", "--from", "{0}", "--cluster", "h200x8", JSON),
        ("simulate", "{0}", JSON),
    ))  # fmt: skip
    return Input(words, _mutated(random, json.dumps(config, indent=random.choice((None, 1)))), ".json")


def _yaml(random: Random) -> Input:
    text = YAML.replace("${multiply:4, ${.hidden_size}}", "4096") if random.random() < 0.7 else YAML
    return Input(("simulate", "--from", "{0}", "--cluster", "h200x8", JSON), _mutated(random, text), ".yaml")


def _shell(random: Random) -> Input:
    return Input(("simulate", "--from", "{0}", "--cluster", "h200x8", JSON), _mutated(random, SCRIPT), ".sh")


def _strange_file(random: Random) -> Input:
    """A file that is no text, too deep, too long or empty, where any command reads one."""
    depth = random.choice((50, 500, 20_000))
    content = random.choice((
        b"", b"\0" * 100, b"\xff\xfe" + "model".encode("utf-16-le"), b"[" * depth,
        b"a = " + b"[" * depth + b"]" * depth, b".".join([b"a"] * depth) + b" = 1",
        b'{"a":' * depth + b"1" + b"}" * depth, b"a = " + b"9" * depth,
        b'{"hidden_size": ' + b"9" * depth + b"}", b"a: &a [1]\n" + b"b: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n" * 3,
        b"- " * depth, b"x" * 100_000, b'x = "' + b"y" * 100_000 + b'"', b"\n" * depth, b"$" + b"{a:-" * depth,
        b"$((" * depth, b"'" * (depth + 1), b"\\" * depth, bytes(random.randrange(256) for _ in range(200)),
        b"t_s,power_w,temperature_c\n0,1,2\n", b"a,b\n1\n", b'"', b"{", b"---\n---\n",
        b"a: &x1 [1,1,1,1,1,1,1,1,1]\n" + b"".join(
            b"b%d: &x%d [%s]\n" % (n, n, b",".join([b"*x%d" % (n - 1)] * 9)) for n in range(2, 12)),
    ))  # fmt: skip
    return Input(random.choice(_READERS), content, random.choice((".toml", ".json", ".yaml", ".sh", ".csv", ".gz", "")))


_RUN = ("--model", "llama3-8b", "--cluster", "h200x8")
_READERS = (
    ("simulate", "{0}"), ("simulate", "--from", "{0}", *_RUN[2:]), ("simulate", "--model", "{0}", *_RUN[2:]),
    ("simulate", *_RUN[:2], "--cluster", "{0}"), ("simulate", *_RUN, "--placement", "{0}"), ("sweep", "{0}"),
    ("validate", "results", "{0}"), ("validate", "ops", "{0}", "--gpu", "h200"), ("compare", "{0}", "{0}"),
    ("validate", "heat", "{0}", "--gpu", "h200"), ("calibrate", "{0}", "-o", "/dev/null/x"),
    ("emulate", "--timeline", "{0}", "--predict"),
)  # fmt: skip


def _other(random: Random) -> Input:
    """The other commands, and what is no regular file."""
    choice = random.randrange(5)
    if choice == 0:
        words = ["catalog", random.choice((*KINDS, *NASTY)), random.choice((*entries("gpus"), *NASTY))]
        return Input(tuple(words[: random.randint(1, 3)]))
    if choice == 1:
        return Input(("sweep", "{0}"), _mutated(random, STUDY), ".toml")
    if choice == 2:
        special = random.choice(
            ("{fifo}", "{folder}", "/dev/zero", "/dev/null", "/dev/full", "/nowhere", "/proc/self/mem")
        )
        return Input(tuple(word.replace("{0}", special) for word in random.choice(_READERS)))
    if choice == 3:
        return Input(
            (random.choice(("simulate", "compare", "validate", "sweep", "show", *NASTY)), *random.sample(NASTY, 2))
        )
    return Input(
        ("emulate", *_RUN, "--predict", "--rank", _value(random), "--seconds", random.choice(("1", "5", *NASTY)))
    )


def write_files(case: Input, folder: Path) -> list[str]:
    """Write the file of an input, and return its words with the paths filled in."""
    fifo, below = folder / "fifo", folder / "folder"
    if not fifo.exists():
        os.mkfifo(fifo)
        below.mkdir()
    path = folder / f"input{case.suffix}"
    if case.content is not None:
        path.write_bytes(case.content)
    places = {"{0}": str(path), "{fifo}": str(fifo), "{folder}": str(below)}
    words = []
    for word in case.words:
        for mark, place in places.items():
            word = word.replace(mark, place) if case.content is not None or mark != "{0}" else word
        words.append(word)
    return words


def draw_run(random: Random) -> Input:
    """Draw a run that is more often right than not, small enough to be simulated in no time."""
    edges = edge_settings(random) if random.random() < 0.3 else []
    return Input(("simulate", JSON, "--ignore-memory", *as_settings(draw_request(random)), *edges))


def draw_valid_request(random: Random) -> dict[str, Any]:
    """Draw requests until one of them is a run."""
    while True:
        request = draw_request(random)
        try:
            resolve_run(request)
        except SpecError:
            continue
        return request


def draw_request(random: Random) -> dict[str, Any]:
    """Draw a request over all models, clusters, frameworks, schedules, formats and conditions; half are of the catalog.

    More often right than not, and small enough to be simulated in no time.
    """
    pick = random.choice
    named = random.random() < 0.5
    model: dict[str, Any] = {"base": pick(sorted(entries("models")))} if named else _small_model(random)
    layers, experts = ((entries("models")[model["base"]].values.get(name, 0) for name in ("layers", "experts"))
                       if named else (model["layers"], model.get("experts", 0)))  # fmt: skip
    cluster = _cluster(random)
    shape = resolve_cluster(cluster)
    world = shape.gpus
    tp = pick([degree for degree in (1, 1, 2, 4, 8) if world % degree == 0])
    pp = pick([degree for degree in (1, 1, 2, 4) if world // tp % degree == 0 and layers % degree == 0])
    cp = pick([degree for degree in (1, 1, 1, 2) if world // tp // pp % degree == 0])
    dp = world // tp // pp // cp
    parallelism: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "zero": pick((0, 1, 2, 3))}
    if pp > 1:
        parallelism["schedule"] = pick(("1f1b", "gpipe", "zero-bubble", "dualpipe"))
        if random.random() < 0.2 and layers % (2 * pp) == 0:
            parallelism.update(vpp=2, schedule="interleaved")
    if random.random() < 0.5:
        parallelism["overlap"] = random.sample(("tp", "dp", "pp", "ep", "cp"), random.randint(0, 3))
    if random.random() < 0.2:
        parallelism["order"] = pick(("tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp"))
    if cp > 1:
        parallelism["cp_kind"] = pick(("ring", "all-to-all"))
    if experts:
        parallelism["ep"] = pick([degree for degree in (1, 2, 4, 8) if dp % degree == 0 and experts % degree == 0])
    micro = pick((1, 1, 2, 4))
    training: dict[str, Any] = {
        "seq_length": pick((128, 1024, 4096, 32768)), "micro_batch_size": micro,
        "global_batch_size": micro * dp * pick((1, 2, pp, 4 * pp, 100 * pp)),
        "precision": pick(("bf16", "bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32")),
        "recompute": pick(("none", "selective", "full")), "optimizer": pick(("adam", "sgd", "none")),
    }  # fmt: skip
    return {
        "model": model,
        "parallelism": parallelism,
        "training": training,
        "cluster": cluster,
        "conditions": _conditions(random, shape),
        "framework": {"base": pick(sorted(entries("frameworks")))},
    }


def _small_model(random: Random) -> dict[str, Any]:
    pick = random.choice
    heads = pick((8, 16, 32))
    model: dict[str, Any] = {
        "name": "random", "layers": pick((1, 2, 4, 8, 12)), "hidden": heads * pick((16, 64, 128)),
        "ffn": pick((256, 1024, 8192)), "heads": heads, "kv_heads": pick((1, 2, 8, heads)),
        "head_dim": pick((8, 64, 128)), "vocab": pick((0, 1000, 32000, 128256)),
        "activation": pick(("swiglu", "gelu", "squared-relu")), "norm": pick(("rmsnorm", "layernorm")),
        "norms_per_layer": pick((1, 2, 4)), "qk_norm": pick((True, False)),
        "position": pick(("rope", "learned", "alibi", "none")), "bias": pick(("none", "qkv", "all")),
        "tied_embeddings": pick((True, False)), "dropout_fraction": pick((0.0, 0.1)),
        "causal": pick((True, True, False)), "window": pick((0, 0, 128)), "mtp_layers": pick((0, 0, 0, 1)),
    }  # fmt: skip
    if random.random() < 0.3:
        model.update(experts=8, topk=pick((1, 2, 8)), shared_ffn=pick((0, 256)), dense_layers=pick((0, 1)))
    if random.random() < 0.1:
        model.update(attention="mla", kv_lora_rank=128, rope_head_dim=32, v_head_dim=64, q_lora_rank=pick((0, 128)))
    return model


def _cluster(random: Random) -> dict[str, Any]:
    """Draw a few nodes: of the catalog's clusters, or of one kind with another number of GPUs."""
    pick = random.choice
    cooling: dict[str, Any] = {
        "inlet_c": pick((25, 25, -20, 45, 80)),
        "kind": pick(("air", "air", "liquid", "immersion")),
    }
    if random.random() < 0.5:
        base = pick(sorted(entries("clusters")))
        alone = not resolve_cluster(base).fabric.nics_per_node
        return {"base": base, "nodes": 1 if alone else pick((1, 1, 2, 4)), "cooling": cooling}
    gpus, nodes = pick((1, 2, 4, 8)), pick((1, 1, 1, 2, 4))
    base = pick(
        (
            "charllm-ppt-h200",
            "charllm-ppt-h200",
            "charllm-ppt-h100",
            *(("b200x8", "a100x8") if nodes == 1 else ("charllm-ppt-h100",) * 2),
        )
    )
    cluster: dict[str, Any] = {"base": base, "nodes": nodes, "cooling": cooling}
    if gpus != 8:
        cluster["node"] = {"gpus": gpus, "upstream": []}
    return cluster


def _conditions(random: Random, cluster: Cluster) -> dict[str, Any]:
    """Draw limits, spread, faults and lengths; most runs have few of them."""
    world, nodes, gpu = cluster.gpus, cluster.nodes, cluster.node.gpu
    low_w = max(gpu.power_cap_min_w, 1.05 * gpu.idle_draw_w)
    cap_w = low_w + random.random() * max(0.0, gpu.power_cap_w - low_w)
    clock_hz = gpu.clock_max_hz - random.random() ** 2 * (gpu.clock_max_hz - gpu.clock_idle_hz)
    possible = (
        (0.15, "power_cap_w", cap_w), (0.15, "clock_cap_hz", clock_hz),
        (0.1, "silicon_spread_fraction", random.uniform(0, 0.5)), (0.1, "weak_gpus", [random.randrange(world)]),
        (0.1, "braked_nodes", [random.randrange(nodes)]), (0.1, "steps", random.randint(1, 10**8)),
    )  # fmt: skip
    conditions: dict[str, Any] = {name: value for chance, name, value in possible if random.random() < chance}
    conditions |= _faults(random, world, nodes)
    if "steps" not in conditions and random.random() < 0.1:
        conditions["seconds_s"] = 10 ** random.uniform(-2, 9)
    return conditions


def _faults(random: Random, world: int, nodes: int) -> dict[str, Any]:
    """Draw GPUs, links and hosts that are worse than the others; most runs have none."""
    possible = (
        ("hot_gpus", world, "hot_sink_fraction", (0.5, 8.0)), ("capped_gpus", world, "capped_power_w", (150.0, 700.0)),
        ("slow_link_gpus", world, "slow_link_fraction", (0.01, 1.0)),
        ("slow_nic_nodes", nodes, "slow_nic_fraction", (0.01, 1.0)),
        ("slow_host_nodes", nodes, "slow_host_fraction", (0.01, 1.0)),
    )  # fmt: skip
    found: dict[str, Any] = {}
    for listed, count, severity, bounds in possible:
        if random.random() < 0.05:
            found |= {listed: [random.randrange(count)], severity: random.uniform(*bounds)}
    return found


def as_settings(table: dict[str, Any], path: str = "") -> list[str]:
    """Write a table as --set words."""
    words: list[str] = []
    for key, value in table.items():
        if isinstance(value, dict):
            words += as_settings(value, f"{path}{key}.")
        else:
            words += ["--set", f"{path}{key}={json.dumps(value)}"]
    return words
