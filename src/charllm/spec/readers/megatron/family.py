"""Which code base and which years a set of flags belongs to, where that changes what the flags mean."""

from dataclasses import dataclass

from charllm.spec.readers.megatron.effects import effects
from charllm.spec.readers.megatron.flags import Flags

_DEEPSPEED = ("--deepspeed", "--deepspeed-config", "--deepscale", "--deepscale-config", "--zero-stage",
              "--ds-sequence-parallel-size", "--no-pipeline-parallel",
              "--deepspeed-activation-checkpointing")  # fmt: skip
_EPFL = ("--use_rms_norm", "--no_tie_embed_logits", "--use_bias", "--use_post_ln", "--num_layers", "--hidden_size")
"""Megatron-LLM alone spells its flags with underscores."""
_SINCE_2024 = ("--use-legacy-models", "--transformer-impl", "--context-parallel-size", "--cross-entropy-loss-fusion",
               "--multi-latent-attention", "--moe-router-topk", "--ckpt-format", "--use-torch-fsdp2", "--qk-layernorm",
               "--patch-tokenizer-type", "--fp8-format", "--grad-reduce-in-bf16", "--tp-comm-overlap")  # fmt: skip
_MEGABLOCKS = ("--moe-num-experts", "--moe-top-k", "--moe-expert-model-parallelism")


@dataclass(frozen=True, slots=True)
class Family:
    """A code base, as far as its defaults differ from those of Megatron-LM today."""

    deepspeed: bool = False
    """Megatron-DeepSpeed and BigScience: the engine, its ZeRO and its experts are DeepSpeed's."""
    megablocks: bool = False
    bias_by_flag: bool = False
    """Megatron-LLM (EPFL): linear layers have a bias only with --use_bias."""
    before_flash: bool = False
    """Megatron-LM until 2022: attention is three kernels."""
    year_open: bool = False
    """Whether the flags fit 2023 as well as today: attention without --use-flash-attn was three kernels until 2024."""


def find_family(flags: Flags) -> Family:
    """Tell the code base by flags that only one has."""
    spelled = set(flags.written.values())
    dashed = {name.replace("_", "-") for name in spelled}
    new = flags.any("--use-mcore-models", "--use-flash-attn", "--attention-backend", "--use-megatron-fsdp")
    modern = text_is(flags, "--transformer-impl", "transformer_engine") or new
    return Family(
        deepspeed=flags.any(*_DEEPSPEED),
        megablocks=bool(dashed & set(_MEGABLOCKS)),
        bias_by_flag=bool(spelled & set(_EPFL)),
        before_flash=bool(dashed & effects().until_2022) and not modern,
        year_open=not modern and not flags.any(*_DEEPSPEED, *_SINCE_2024) and not dashed & effects().until_2022,
    )


def text_is(flags: Flags, flag: str, value: str) -> bool:
    """Say whether a flag is given with a certain value."""
    return flags.values.get(flag, [])[:1] == [value]
