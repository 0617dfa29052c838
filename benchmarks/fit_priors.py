"""Where the fit begins: priors of the constants, how sure they are (as a factor), and their bounds.

GPU rates: the large-product rate of operator tables and measured ops over the datasheet's dense peak. Others: guesses
of their size from what they mean.
"""

Prior = tuple[float, float, float, float]

PRIORS: dict[str, dict[str, Prior]] = {
    "gpu": {
        "matmul_fraction": (0.62, 0.12, 0.2, 1.0),
        "fp8_matmul_fraction": (0.58, 0.12, 0.2, 1.0),
        "fp4_matmul_fraction": (0.45, 0.15, 0.1, 1.0),
        "attention_fraction": (0.48, 0.15, 0.1, 1.0),
    },
    "gpu:a100": {
        "matmul_fraction": (0.79, 0.05, 0.5, 1.0),
        "attention_fraction": (0.57, 0.1, 0.2, 1.0),
    },
    "gpu:v100": {"matmul_fraction": (0.75, 0.1, 0.4, 1.0), "attention_fraction": (0.4, 0.3, 0.1, 1.0)},
    "gpu:h100": {
        "matmul_fraction": (0.69, 0.05, 0.4, 1.0),
        "fp8_matmul_fraction": (0.61, 0.03, 0.3, 1.0),
        "attention_fraction": (0.6, 0.1, 0.2, 1.0),
        "flash2_fraction": (0.65, 0.15, 0.3, 1.0),
    },
    "gpu:h200": {
        "matmul_fraction": (0.70, 0.02, 0.4, 1.0),
        "fp8_matmul_fraction": (0.62, 0.03, 0.3, 1.0),
        "attention_fraction": (0.6, 0.05, 0.2, 1.0),
    },
    "gpu:h100-hbm2e-500w": {
        "matmul_fraction": (0.58, 0.08, 0.3, 1.0),
        "fp8_matmul_fraction": (0.52, 0.08, 0.3, 1.0),
        "attention_fraction": (0.5, 0.1, 0.2, 1.0),
    },
    "gpu:b200": {
        "matmul_fraction": (0.52, 0.08, 0.3, 1.0),
        "fp8_matmul_fraction": (0.58, 0.08, 0.3, 1.0),
        "fp4_matmul_fraction": (0.45, 0.15, 0.2, 1.0),
    },
    "gpu:gb200": {"matmul_fraction": (0.53, 0.08, 0.3, 1.0), "fp8_matmul_fraction": (0.58, 0.08, 0.3, 1.0)},
    "gpu:b300": {
        "matmul_fraction": (0.52, 0.08, 0.3, 1.0),
        "fp8_matmul_fraction": (0.64, 0.08, 0.3, 1.0),
        "fp4_matmul_fraction": (0.4, 0.15, 0.1, 1.0),
    },
    "gpu:gb300": {
        "matmul_fraction": (0.56, 0.08, 0.3, 1.0),
        "fp8_matmul_fraction": (0.68, 0.08, 0.3, 1.0),
        "fp4_matmul_fraction": (0.4, 0.15, 0.1, 1.0),
    },
    # Products: published fp8 rates, about 1.15 and 1.6 PFLOP/s; the best bf16 rates that ml-engineering finds (668,
    # 785, 1565 TFLOP/s). Attention: FlashAttention-2 at 329 TFLOP/s forward on an MI300X (Azure AI benchmarking guide).
    "gpu:mi300x": {
        "fp8_matmul_fraction": (0.42, 0.1, 0.2, 1.0),
        "matmul_fraction": (0.5, 0.08, 0.2, 1.0),
        "attention_fraction": (0.27, 0.15, 0.1, 1.0),
    },
    "gpu:mi325x": {
        "fp8_matmul_fraction": (0.57, 0.1, 0.2, 1.0),
        "matmul_fraction": (0.58, 0.08, 0.2, 1.0),
        "attention_fraction": (0.32, 0.15, 0.1, 1.0),
    },
    "gpu:mi355x": {"matmul_fraction": (0.6, 0.08, 0.2, 1.0), "attention_fraction": (0.35, 0.25, 0.1, 1.0)},
    "framework": {
        # Eager PyTorch on H200 boards: 70 to 105 us for each op described (benchmarks/device/h200/host.csv).
        "launch_s": (65e-6, 0.4, 1e-6, 300e-6),
        "step_host_s": (0.02, 0.5, 0.001, 0.15),
        "traffic_factor": (1.6, 0.25, 0.8, 3.0),
        "attention_fraction": (0.9, 0.1, 0.4, 1.25),
        "matmul_fraction": (0.97, 0.03, 0.7, 1.06),
    },
    "framework:megatron-bridge": {"step_host_s": (0.02, 0.3, 0.001, 0.1)},
    "framework:jax": {"launch_s": (2e-6, 0.5, 2e-7, 20e-6)},
    "framework:pytorch-eager": {"launch_s": (70e-6, 0.1, 5e-5, 2e-4)},
    "all": {
        "narrow_ramp": (350.0, 0.15, 100, 800),
        "misaligned_batch_fraction": (0.15, 0.4, 0.03, 1.0),
        "tensor_host_s": (6e-5, 0.4, 1e-6, 5e-4),
        "pass_launches": (30.0, 0.5, 1, 300),
        "fill_power": (0.6, 0.3, 0.05, 1.0),
        "grouped_fraction": (0.75, 0.15, 0.3, 1.0),
        "block_scaled_fraction": (0.95, 0.05, 0.7, 1.0),
        "attention_ramp": (600.0, 0.25, 100, 2000),
        "exponential_fraction": (0.78, 0.2, 0.1, 1.5),
        "attention_backward_fraction": (0.82, 0.08, 0.5, 1.0),
        "link_fraction": (0.8, 0.08, 0.5, 0.95),
        "nic_fraction": (0.8, 0.1, 0.4, 1.0),
        "nic_hop_s": (6e-6, 0.4, 1e-6, 30e-6),
        "contention_fraction": (0.15, 0.3, 0.02, 0.5),
        "overlap_chunks": (4.0, 0.3, 1.5, 16),
        "jitter_fraction": (0.006, 0.5, 0.0005, 0.03),
        "sparse_host_s": (2.0e-3, 0.2, 1e-5, 8e-3),
        "expert_host_s": (12e-6, 0.3, 1e-7, 1e-4),
        "uncaptured_fraction": (0.5, 0.3, 0.05, 1.0),
        "narrow_cast_factor": (1.15, 0.1, 1.0, 2),
        "kernel_gap_s": (3.5e-6, 0.2, 1e-6, 8e-6),
    },
}
