"""How Megatron-LM flags cut a step over ranks."""

from typing import Any

from charllm.spec.readers.megatron.derived import CP_KINDS, SHARDINGS, counted_stages, read_layout, uneven_stages
from charllm.spec.readers.megatron.family import Family
from charllm.spec.readers.megatron.flags import Flags, count_of, count_or, known_text_of, text_of
from charllm.spec.readers.values import read_choice

Table = dict[str, Any]

DEGREES = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
}
DP_OVERLAPS = ("--overlap-grad-reduce", "--overlap-param-gather", "--use-torch-fsdp2")
ACCOUNTED = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")


def read_parallelism(flags: Flags, family: Family, sparse: bool) -> Table:
    """Return degrees, stages, sharding and overlap."""
    table: Table = {axis: count_or(flags, flag, 1) for axis, flag in DEGREES.items()}
    if "--no-pipeline-parallel" in flags:
        table["pp"] = 1
    if family.deepspeed and not sparse:
        table["ep"] = 1
    ulysses = count_or(flags, "--ds-sequence-parallel-size", 1)
    table["cp"] = max(table["cp"], ulysses)
    table.update(_stages(flags, family, table["pp"]))
    table["etp"] = _etp(flags, family, table["tp"]) if sparse else None
    table["sp"] = "--sequence-parallel" in flags and table["tp"] > 1
    table["zero"] = _zero(flags)
    table["cp_kind"] = _cp_kind(flags, table["cp"], ulysses)
    table["overlap"] = _overlap(flags, table)
    if "--use-tp-pp-dp-mapping" in flags:
        table["order"] = "tp-cp-ep-pp-dp"
    return {field: value for field, value in table.items() if value is not None}


def _etp(flags: Flags, family: Family, tp: int) -> int | None:
    if family.deepspeed:
        return tp if "--enable-expert-tensor-parallelism" in flags else 1
    return count_of(flags, "--expert-tensor-parallel-size", low=1)


def _cp_kind(flags: Flags, cp: int, ulysses: int) -> str | None:
    if cp == 1:
        return None
    kind = "a2a" if ulysses > 1 else known_text_of(flags, "--cp-comm-type") or "p2p"
    return read_choice("--cp-comm-type", kind, CP_KINDS)


def _stages(flags: Flags, family: Family, pp: int) -> Table:
    """Read how many chunks each stage holds, and their layers when they are not all equal."""
    flag = "--pipeline-model-parallel-layout"
    layout = known_text_of(flags, flag)
    if layout is not None:
        split = read_layout(flag, layout, pp)
        return {"vpp": len(split) // pp, "layers_per_stage": split}
    vpp = _chunks(flags, pp)
    return {"vpp": vpp, "layers_per_stage": _uneven(flags, family, pp, vpp) if pp > 1 else None}


ENDS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")


def _chunks(flags: Flags, pp: int) -> int:
    flag = "--num-layers-per-virtual-pipeline-stage"
    each = count_of(flags, flag) if pp > 1 else None
    if not each:
        chunks = count_or(flags, "--virtual-pipeline-model-parallel-size", 1)
        return count_or(flags, "--num-virtual-stages-per-pipeline-rank", chunks) if pp > 1 else 1
    total = count_or(flags, "--num-layers", 0) + sum(account in flags for account in ACCOUNTED)
    if total % (pp * each) or not total:
        raise flags.error(flag, str(each), f"a divisor of the {total} layers over {pp} pipeline stages")
    return total // (pp * each)


def ask_for_stages(flags: Flags, missing: dict[str, str]) -> None:
    """Ask for the layers of each stage where ends hold numbers of their own and the script only names its model."""
    ends = [flag for flag in ENDS if flag in flags]
    if ends and "--num-layers" not in flags:
        given = ", ".join(f"{flag} {flags.values[flag][0]}" for flag in ends)
        missing["parallelism.layers_per_stage"] = f"--set parallelism.layers_per_stage=N,N,... ({given})"


def _uneven(flags: Flags, family: Family, pp: int, vpp: int) -> list[int] | None:
    layers = count_or(flags, "--num-layers", 0)
    first, last = (count_of(flags, flag) for flag in ENDS)
    embedding, loss = (flag in flags for flag in ACCOUNTED)
    if "embedding" in (text_of(flags, "--pp-partition-method") or ""):
        embedding = loss = True
    if not layers:
        return None
    if first is not None or last is not None:
        return uneven_stages(DEGREES["pp"], layers, pp, vpp, (first, last))
    if embedding or loss:
        return counted_stages(DEGREES["pp"], layers, pp * vpp, embedding, loss)
    if "--standalone-embedding-stage" in flags:
        return uneven_stages(DEGREES["pp"], layers, pp, vpp, (0, None))
    if family.deepspeed and layers % pp and layers > pp and pp <= layers:
        low, more = divmod(layers, pp)
        return [low + 1] * more + [low] * (pp - more)
    return None


def _zero(flags: Flags) -> int:
    if "--use-torch-fsdp2" in flags:
        return 3
    if "--use-megatron-fsdp" in flags:
        strategy = "--data-parallel-sharding-strategy"
        return read_choice(strategy, known_text_of(flags, strategy) or "no_shard", SHARDINGS)
    return int("--use-distributed-optimizer" in flags)


def _overlap(flags: Flags, table: Table) -> list[str]:
    hidden = {
        "tp": "--tp-comm-overlap" in flags and table["sp"],
        "dp": flags.any(*DP_OVERLAPS),
        "pp": table["vpp"] > 1 and "--no-overlap-p2p-communication" not in flags,
        "ep": "--overlap-moe-expert-parallel-comm" in flags,
        "cp": table["cp_kind"] == "ring",
    }
    return [axis for axis, hides in hidden.items() if hides]


def split_shards(flags: Flags, zero: int, data_ranks: int | None) -> Table:
    """Return over how many ranks a copy is sharded, where instances of the distributed optimizer divide them."""
    instances = count_or(flags, "--num-distributed-optimizer-instances", 1)
    if instances == 1 or not zero or not data_ranks or data_ranks % instances:
        return {}
    return {"shard_size": data_ranks // instances}
