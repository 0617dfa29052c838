"""What a GPU, TransformerEngine and Apex would answer, in their place: nothing of parsing or validation is replaced."""

import typing
import warnings
from types import SimpleNamespace

HOPPER = SimpleNamespace(major=9, minor=0, name="H100", total_memory=80 * 2**30, multi_processor_count=132)
RECENT_TE = "2.9.0"
PERMUTATIONS = (
    "fused_permute", "fused_permute_with_probs", "fused_sort_chunks_by_index", "fused_sort_chunks_by_index_with_probs",
    "fused_unpermute",
)  # fmt: skip


def stand_in() -> None:
    """Act as if Megatron-Core ran on an H100 with a recent TransformerEngine."""
    import torch
    import typing_extensions

    warnings.simplefilter("ignore")
    typing.override = getattr(typing, "override", typing_extensions.override)  # type: ignore[attr-defined]
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: HOPPER
    # Some versions print on rank 0 only, and ask for the rank.
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from megatron.core import utils
    from packaging.version import Version

    utils._te_version = Version(RECENT_TE)
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils

    rope_utils.fused_apply_rotary_pos_emb = print
    for name in PERMUTATIONS:
        setattr(moe_utils, name, print)
