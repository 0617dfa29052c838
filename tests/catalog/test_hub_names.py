"""Models by the name of their repository on the Hugging Face hub, without a network."""

import pytest

from charllm.catalog.resolve import resolve_model
from charllm.catalog.tables import entries, find_model
from charllm.errors import SpecError

HUB = {
    "meta-llama/Llama-3.1-8B": "llama3-8b",
    "meta-llama/Meta-Llama-3-8B-Instruct": "llama3-8b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama3-70b",
    "meta-llama/Llama-3.1-405B": "llama3-405b",
    "meta-llama/Llama-3.2-1B-Instruct": "llama3.2-1b",
    "meta-llama/Llama-2-7b-hf": "llama2-7b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama4-scout",
    "meta-llama/Llama-4-Maverick-17B-128E": "llama4-maverick",
    "unsloth/Meta-Llama-3.1-8B-bnb-4bit": "llama3-8b",
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": "llama3-70b",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "Qwen/Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "Qwen/Qwen2.5-Coder-32B-Instruct": "qwen2.5-32b",
    "Qwen/Qwen2.5-Coder-3B": "qwen2.5-3b",
    "Qwen/Qwen2.5-VL-7B-Instruct": None,
    "Qwen/Qwen2.5-Math-1.5B": "qwen2.5-1.5b",
    "Qwen/Qwen2-7B-Instruct": "qwen2.5-7b",
    "Qwen/QwQ-32B": "qwen2.5-32b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-8B-Base": "qwen3-8b",
    "Qwen/Qwen3-4B-Instruct-2507": "qwen3-4b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3-coder-480b-a35b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3-next-80b-a3b",
    "google/gemma-7b-it": "gemma-7b",
    "google/gemma-2-9b-it": "gemma2-9b",
    "google/gemma-2-27b": "gemma2-27b",
    "google/gemma-3-1b-pt": "gemma3-1b",
    "google/gemma-3-270m": "gemma3-270m",
    "google/gemma-3-27b-it": "gemma3-27b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "mistralai/Mistral-Nemo-Base-2407": "mistral-nemo-12b",
    "mistralai/Ministral-8B-Instruct-2410": "ministral-8b",
    "mistralai/Mistral-Small-24B-Base-2501": "mistral-small-24b",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral-small-24b",
    "mistralai/Mistral-Small-Instruct-2409": "mistral-small-22b",
    "mistralai/Mistral-Large-Instruct-2411": "mistral-large-123b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "microsoft/phi-2": "phi-2",
    "microsoft/Phi-3-mini-4k-instruct": "phi3-mini",
    "microsoft/Phi-3.5-mini-instruct": "phi3-mini",
    "microsoft/Phi-3.5-MoE-instruct": "phi3.5-moe",
    "microsoft/phi-4": "phi4",
    "microsoft/Phi-4-mini-instruct": "phi4-mini",
    "microsoft/Phi-4-reasoning-plus": "phi4",
    "allenai/OLMo-2-1124-7B": "olmo2-7b",
    "allenai/OLMo-2-0325-32B-Instruct": "olmo2-32b",
    "allenai/Olmo-3-1025-7B": "olmo3-7b",
    "allenai/OLMoE-1B-7B-0924": "olmoe-1b-7b",
    "HuggingFaceTB/SmolLM2-135M": "smollm2-135m",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": "smollm2-1.7b",
    "HuggingFaceTB/SmolLM3-3B-Base": "smollm3-3b",
    "ibm-granite/granite-3.3-8b-instruct": "granite3-8b",
    "ibm-granite/granite-3.1-2b-base": "granite3-2b",
    "tiiuae/Falcon3-7B-Base": "falcon3-7b",
    "tiiuae/Falcon3-10B-Instruct": "falcon3-10b",
    "zai-org/GLM-4-9B-0414": "glm4-9b",
    "zai-org/GLM-4-32B-0414": "glm4-32b",
    "zai-org/GLM-4.5-Air": "glm4.5-air",
    "zai-org/GLM-4.6": "glm4.5",
    "deepseek-ai/DeepSeek-V3-Base": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.1-Base": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-v3",
    "deepseek-ai/DeepSeek-V2-Lite-Chat": "deepseek-v2-lite",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "llama3-8b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": "r1-distill-qwen-1.5b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2.5-32b",
    "deepseek-ai/deepseek-llm-7b-base": "deepseek-7b",
    "deepseek-ai/deepseek-moe-16b-base": "deepseek-moe-16b",
    "01-ai/Yi-34B": "yi-34b",
    "01-ai/Yi-1.5-9B-Chat": "yi-9b",
    "CohereLabs/c4ai-command-r-v01": "command-r-35b",
    "CohereLabs/c4ai-command-r-plus": "command-r-plus-104b",
    "CohereLabs/c4ai-command-r7b-12-2024": "command-r7b",
    "CohereLabs/c4ai-command-a-03-2025": "command-a-111b",
    "nvidia/Nemotron-Mini-4B-Instruct": "nemotron-mini-4b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron3-nano-30b-a3b",
    "internlm/internlm2_5-7b-chat": "internlm2-7b",
    "internlm/internlm3-8b-instruct": "internlm3-8b",
    "moonshotai/Kimi-K2-Instruct-0905": "kimi-k2",
    "moonshotai/Moonlight-16B-A3B": "moonlight-16b-a3b",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2": "minimax-m2",
    "ByteDance-Seed/Seed-OSS-36B-Base": "seed-oss-36b",
    "swiss-ai/Apertus-8B-Instruct-2509": "apertus-8b",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan-a13b",
    "LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct": "exaone3.5-7.8b",
    "upstage/SOLAR-10.7B-v1.0": "solar-10.7b",
    "databricks/dbrx-base": "dbrx",
    "bigcode/starcoder2-15b": "starcoder2-15b",
    "EleutherAI/gpt-neox-20b": "gpt-neox-20b",
    "EleutherAI/pythia-6.9b": "pythia-6.9b",
    "stabilityai/stablelm-2-1_6b": "stablelm2-1.6b",
    "somebody/another-7b": None,
}


@pytest.mark.parametrize(("repository", "name"), HUB.items())
def test_a_repository_is_the_model_of_its_sizes(repository: str, name: str | None) -> None:
    assert find_model(repository) == name


def test_an_unknown_repository_asks_for_its_config() -> None:
    with pytest.raises(SpecError, match=r"somebody/another-7b.*config\.json"):
        resolve_model("somebody/another-7b")


def test_no_two_models_differ_by_dashes_alone() -> None:
    folded = [name.replace("-", "") for name in entries("models")]
    assert len(folded) == len(set(folded))
