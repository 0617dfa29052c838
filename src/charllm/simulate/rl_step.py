"""Steps of reinforcement learning as requests describe them: an update, forward passes for scores, and the engine."""

from dataclasses import asdict, replace

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.rl import RlStep
from charllm.simulate.rl_settings import RlSettings
from charllm.spec.fields import read_field
from charllm.spec.hardware import Cluster
from charllm.spec.parallelism import Parallelism
from charllm.spec.request import Table, as_table, merge
from charllm.spec.run import RunSpec, check_run

SYNCHRONOUS_HOST_S = 4e-3
"""Published: how long a GPU waits between decode steps where an engine schedules after each one, as trainers drive it
(vLLM, issue 6854; 5 to 6 ms with 256 sequences, issue 10634). Servers schedule the next step beside this one."""
PACKED_TOKENS = 4096
"""Published: NeMo RL packs samples up to its longest sequence, 4096 tokens in its 8B recipes."""


def describe_rl(request: Table, settings: RlSettings) -> RlStep:
    """Return the runs that an RL step consists of."""
    degrees = as_table(request.get("parallelism", {}), "parallelism")
    tp, cp = (read_field(Parallelism, axis, degrees.get(axis, 1), "parallelism") for axis in ("tp", "cp"))
    # Ranks that share a sequence pad it to equal parts.
    pieces = tp * cp * (2 if cp > 1 else 1)
    length = -(-(settings.prompt_length + settings.response_length) // pieces) * pieces
    if settings.response_length > settings.longest_response:
        raise SpecError("--response-length", settings.response_length, f"at most {settings.longest_response}")
    cut_off = settings.endless_fraction * settings.longest_response if settings.length_spread_fraction else 0.0
    if cut_off >= settings.response_length:
        raise SpecError("--endless", settings.endless_fraction, f"less than {settings.response_length} / "
                        f"{settings.longest_response}, the mean response over the longest")  # fmt: skip
    for name in ("seq_length", "lora_rank"):
        if name in request.get("training", {}):
            raise SpecError(f"training.{name}", request["training"][name], "left out: lengths are those of samples")
    whole = resolve_run(merge(request, {"training": {"seq_length": length}}))
    rollout, train = split_cluster(whole.cluster, settings)
    update = {**request, "cluster": cluster_table(train)} if rollout else request
    training = {"seq_length": length, "global_batch_size": whole.training.global_batch_size}
    trained = resolve_run(merge(_without_dp(update) if rollout else update, {"training": training}))
    if "micro_batch_size" not in request.get("training", {}):
        trained = _packed(trained)
    scored = _score_run(trained, settings.samples)
    engine = _rollout_run(request, settings, rollout or trained.cluster)
    reward = _reward_run(trained, settings.reward_model, settings.samples) if settings.reward_model else None
    return RlStep(settings, trained, scored, engine, reward)


def _packed(run: RunSpec) -> RunSpec:
    """Return an update whose microbatches hold as many samples as make up PACKED_TOKENS, if the request gives none."""
    each = run.training.global_batch_size // run.parallelism.dp
    most = max(1, PACKED_TOKENS // run.training.seq_length)
    micro = max(size for size in range(1, most + 1) if each % size == 0)
    packed = replace(run, training=replace(run.training, micro_batch_size=micro))
    check_run(packed)
    return packed


def split_cluster(cluster: Cluster, settings: RlSettings) -> tuple[Cluster | None, Cluster]:
    """Return the nodes that generate, None where all do, and those that train."""
    gpus, per_node = settings.rollout_gpus, cluster.node.gpus
    if not gpus:
        if settings.policy != "on-policy":
            raise SpecError("--policy", settings.policy, "on-policy without --rollout-gpus")
        return None, cluster
    if gpus % per_node or gpus >= cluster.gpus or cluster.mixed:
        possible = f"whole nodes of {per_node} GPUs, fewer than the {cluster.gpus} of a uniform cluster"
        raise SpecError("--rollout-gpus", gpus, possible)
    nodes = gpus // per_node
    return replace(cluster, nodes=nodes), replace(cluster, nodes=cluster.nodes - nodes)


def cluster_table(cluster: Cluster) -> Table:
    """Return a cluster as a request holds it."""
    table = asdict(cluster)
    table.pop("mixed", None)
    return {key: value for key, value in table.items() if value is not None}


def _without_dp(request: Table) -> Table:
    degrees = {name: value for name, value in request.get("parallelism", {}).items() if name != "dp"}
    return {**request, "parallelism": degrees}


def _score_run(train: RunSpec, samples: int) -> RunSpec:
    """Return forward passes over all samples on the GPUs of training."""
    degrees = replace(
        train.parallelism, schedule="forward-only", zero=3 if train.parallelism.zero == 3 else 0, overlap=()
    )
    per_round = train.training.micro_batch_size * degrees.dp
    training = replace(
        train.training, optimizer="none", clip_gradients=False, recompute="none", recompute_layers=None,
        recompute_modules=(), optimizer_offload_fraction=0.0, activation_offload_fraction=0.0,
        global_batch_size=-(-samples // per_round) * per_round,
    )  # fmt: skip
    return replace(train, parallelism=degrees, training=training)


def _reward_run(train: RunSpec, name: str, samples: int) -> RunSpec:
    """Return forward passes of another model over all samples, on replicas cut by tp and cp as training is."""
    degrees, length = train.parallelism, train.training.seq_length
    micro = max(1, PACKED_TOKENS // length)
    run = resolve_run({
        "model": name, "cluster": cluster_table(train.cluster), "framework": train.framework.name,
        "parallelism": {"tp": degrees.tp, "cp": degrees.cp},
        "training": {"seq_length": length, "precision": train.training.precision, "micro_batch_size": micro,
                     "global_batch_size": micro * train.cluster.gpus // (degrees.tp * degrees.cp)},
    })  # fmt: skip
    return _score_run(run, samples)


def _rollout_run(request: Table, settings: RlSettings, cluster: Cluster) -> RunSpec:
    """Return the engine on its GPUs, generating answers of the mean length."""
    degrees = {"tp": settings.rollout_tp, "pp": settings.rollout_pp, "ep": settings.rollout_ep}
    replicas = cluster.gpus // (settings.rollout_tp * settings.rollout_pp)
    return resolve_run({
        "model": request["model"],
        "cluster": cluster_table(cluster) if settings.rollout_gpus else request["cluster"],
        "framework": {"base": settings.engine, "step_host_s": SYNCHRONOUS_HOST_S},
        "parallelism": {"schedule": "forward-only", **degrees, **({"etp": 1} if settings.rollout_ep > 1 else {})},
        "training": {"global_batch_size": max(1, replicas), "micro_batch_size": 1,
                     "seq_length": settings.prompt_length},
        "conditions": request.get("conditions", {}),
        "generation": {"prompt_tokens": settings.prompt_length, "new_tokens": settings.response_length,
                       "cache_precision": settings.cache_precision},
    })  # fmt: skip
