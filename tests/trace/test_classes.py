"""Names of real kernels, collectives, operators and groups, and the classes that they belong to."""

from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.trace.classes import communication_kind, read_classes

KERNELS = {
    "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NTT": "gemm",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>": "gemm",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN": "gemm",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x128_4x1x1_kernel0_0": "attention",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS": "attention",
    "void (anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>": "norm",
    "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<": "norm",
    "triton_red_fused_add_addmm_mul_native_layer_norm_split_unsqueeze_19": "norm",
    "triton_poi_fused_add_gelu_3": "elementwise",
    "triton_tem_fused_addmm_5": "gemm",
    "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16,": "softmax",
    "void cross_entropy_fwd_kernel": "loss",
    "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, FusedAdamMathFunctor<": "optimizer",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<": "elementwise",
    "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl<direct_copy_kernel_cuda(at::Tensor": "copy",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<": "reduction",
    "void at::native::indexSelectLargeIndex<": "embedding",
    "void permute_kernel<__nv_bfloat16, float, true, 128>": "routing",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<": "copy",
    "triton_poi_fused_permute_5": "elementwise",
    "triton_poi_fused__scaled_dot_product_efficient_attention_view_7": "elementwise",
    "triton_poi_fused_embedding_0": "elementwise",
    "triton_poi_fused__to_copy_3": "copy",
    "triton_poi_fused_clone_12": "copy",
    "triton_poi_fused_cat_silu_mul_2": "elementwise",
    "triton_per_fused__softmax_topk_1": "softmax",
    "triton_red_fused__to_copy_mean_mul_pow_rsqrt_0": "norm",
    "triton_red_fused_sum_9": "reduction",
    "triton_tem_fused_flex_attention_0": "attention",
    "triton_for_fused_0": "optimizer",
    "void transformer_engine::gated_act_kernel<__nv_bfloat16>": "elementwise",
    "per_token_cast_to_fp8_kernel": "quantize",
    "_ZN5aiter48fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E": "gemm",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64": "scan",
    "chunk_fwd_kernel_o": "scan",
    "_chunk_scan_fwd_kernel": "scan",
    "_state_passing_fwd_kernel": "scan",
    "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128>>": "scan",
    "sm90_m_grouped_fp8_gemm_contiguous_1d2d": "gemm",
    "void fused_rotary_embedding_kernel<c10::BFloat16>": "elementwise",
    "void fused_rope_forward<__nv_bfloat16>": "elementwise",
    "a kernel that nobody knows": None,
}
COMMUNICATION = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("all_reduce", None),
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": ("reduce_scatter", None),
    "ncclDevKernel_SendRecv": ("send_recv", None),
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": ("other communication", None),
    "rccl_main_kernel": ("other communication", None),
    "mscclKernel_Sum_half_Simple": ("other communication", None),
    "void multimem_all_reduce_kernel<c10::BFloat16, 16>": ("all_reduce", None),
    "void vllm::cross_device_reduce_1stage<": ("all_reduce", None),
    "void deep_ep::internode::dispatch<": ("all_to_all", "ep"),
    "void intranode::notify_dispatch<8>(int const*, int*)": ("all_to_all", "ep"),
    "void cached_notify_combine<8>(void**, int*)": ("all_to_all", "ep"),
    "nvshmemi_transfer_rma": ("other communication", None),
    "kuserbuffers_pushsend": ("send_recv", "tp"),
    "userbuffers_fp16_sum_inplace_gpu_rr_rs": ("all_reduce", "tp"),
}
GROUPS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "mesh_dp_shard": "dp",
    "mesh_tp": "tp",
    "mesh_ep": "ep",
    "undefined": None,
}


def test_kernels_are_classed_by_their_names() -> None:
    classes = read_classes()
    assert {name: classes.kernel_class(name) for name in KERNELS} == KERNELS
    assert not any(classes.communication_of(name) for name in KERNELS)


def test_communication_is_told_by_the_names_of_its_libraries() -> None:
    classes = read_classes()
    assert {name: tuple(classes.communication_of(name) or ()) for name in COMMUNICATION} == COMMUNICATION


def test_groups_are_named_after_axes() -> None:
    classes = read_classes()
    assert {name: classes.axis_of(name) for name in GROUPS} == GROUPS


@pytest.mark.parametrize(
    ("name", "kind"),
    [("_allgather_base", "all_gather"), ("nccl:_all_gather_base", "all_gather"), ("all_to_allv", "all_to_all"),
     ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("allreduce_barrier", "barrier"), ("recv", "send_recv"),
     ("nccl:send 0->1", "send_recv"), ("gloo:all_reduce", "all_reduce"), ("coalesced", "send_recv")],
)  # fmt: skip
def test_collectives_are_told_by_the_names_that_backends_record(name: str, kind: str) -> None:
    assert communication_kind(name) == kind


def test_a_table_of_ones_own_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[kernel]]\nclass = "mine"\npatterns = ["nobody", "nvjet"]\n')
    classes = read_classes(path)
    assert classes.kernel_class("a kernel that nobody knows") == "mine"
    assert classes.kernel_class("nvjet_hsh") == "mine"
    assert classes.kernel_class("fmha") == "attention"


@pytest.mark.parametrize(
    ("table", "told"),
    [("[[kernels]]", "kernels"), ("[[kernel]]\npatterns = []", "class and patterns"),
     ('[[kernel]]\nclass = "x"\npatterns = ["("]', "valid regular expressions"), ("x = ", "readable TOML"),
     ('[[kernel]]\nclass = "x"', "a list of regular expressions")],
)  # fmt: skip
def test_a_wrong_table_is_refused_with_what_is_wrong(table: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(table)
    with pytest.raises(SpecError, match=told):
        read_classes(path)
