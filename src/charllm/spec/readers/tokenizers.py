"""How many tokens a tokenizer known by name has, for files that name one instead of stating a vocabulary.

Source: ``vocab_size`` in the config.json of the models that publish each tokenizer; tiktoken's ``n_vocab``.
"""

import re
from collections.abc import Iterable
from typing import Any

VOCABULARIES = {
    # OpenAI and what uses its byte pairs.
    "gpt2": 50_257, "gpt-2": 50_257, "gpt2bpetokenizer": 50_257, "r50k-base": 50_257, "p50k-base": 50_281,
    "cl100k-base": 100_277, "o200k-base": 200_019, "o200k-harmony": 201_088, "gpt-oss": 201_088,
    "cerebras-gpt": 50_257, "gpt-j": 50_400, "gptj": 50_400, "gpt-neox": 50_277, "gpt-neox-20b": 50_277,
    "gptneox": 50_277, "pythia": 50_277, "rwkv-4": 50_277, "dolly-v2": 50_280, "redpajama-incite": 50_432,
    "facebook/opt": 50_272, "metaseq": 50_272, "galactica": 50_000, "codegen-": 51_200, "biogpt": 42_384,
    # Llama.
    "llama-tokenizer": 32_000, "llamatokenizer": 32_000, "llama-1": 32_000, "llama1": 32_000, "llama-7b": 32_000,
    "llama-13b": 32_000, "llama-30b": 32_000, "llama-65b": 32_000, "open-llama": 32_000, "tinyllama": 32_000,
    "vicuna": 32_000, "llama-2": 32_000, "llama2": 32_000, "llama2tokenizer": 32_000, "solar-10.7b": 32_000,
    "codellama": 32_016, "codellama-34b": 32_000, "code-llama": 32_016, "llama-3": 128_256, "llama3": 128_256,
    "llama31": 128_256, "llama32": 128_256, "llama33": 128_256, "llama-4": 202_048, "llama4": 202_048,
    "llama-3.1-nemotron": 128_256, "llama-3-3-nemotron": 128_256, "openlm-research": 32_000,
    # Mistral.
    "mistral-7b": 32_000, "mistral-7b-v0.3": 32_768, "mistral-7b-instruct-v0.3": 32_768, "mixtral": 32_000,
    "mixtral-8x22b-instruct": 32_768, "mixtral-8x22b-v0.3": 32_768, "mistral-nemo": 131_072, "tekken": 131_072,
    "mistral-large": 32_768, "mistral-small": 131_072, "mistral-small-instruct-2409": 32_768, "ministral": 131_072,
    "codestral": 32_768, "pixtral": 131_072, "devstral": 131_072, "mathstral": 32_768, "zephyr-7b": 32_000,
    # Qwen.
    "qwen": 151_936, "qwen-14b": 152_064, "qwen-72b": 152_064, "qwen1.5": 151_936, "qwen1.5-14b": 152_064,
    "qwen1.5-32b": 152_064, "qwen1.5-72b": 152_064, "qwen1.5-110b": 152_064, "qwen2": 151_936, "qwen2-7b": 152_064,
    "qwen2-72b": 152_064, "qwen2-57b": 151_936, "qwen2.5": 151_936, "qwen2.5-7b": 152_064, "qwen2.5-14b": 152_064,
    "qwen2.5-32b": 152_064, "qwen2.5-72b": 152_064, "qwen2.5-coder-7b": 152_064, "qwen2.5-coder-14b": 152_064,
    "qwen2.5-coder-32b": 152_064, "qwen2.5-math-7b": 152_064, "qwen2.5-math-72b": 152_064, "qwq": 152_064,
    "qwen3": 151_936, "qwen3.5": 248_320, "qwen3.6": 248_320, "qwen3-next": 151_936,
    # DeepSeek.
    "deepseek-llm": 102_400, "deepseek-moe": 102_400, "deepseek-math": 102_400, "deepseek-v2": 102_400,
    "deepseek-coder-v2": 102_400, "deepseek-coder": 32_256, "deepseek-v3": 129_280, "deepseekv3": 129_280,
    "deepseekv2": 102_400, "deepseek-r1": 129_280, "deepseek-r1-distill-llama": 128_256,
    "deepseek-r1-distill-qwen": 152_064, "deepseek-r1-distill-qwen-1.5b": 151_936,
    # Google.
    "gemma": 256_000, "gemma-2": 256_000, "gemma2": 256_000, "gemma-3": 262_208, "gemma3": 262_208,
    "gemma-3-1b": 262_144, "gemma-3-270m": 262_144, "gemma-3n": 262_400, "paligemma": 257_216, "mt5": 250_112,
    "umt5": 256_384, "t5-": 32_128, "bert-base-uncased": 30_522, "bert-large-uncased": 30_522,
    "bertwordpiecelowercase": 30_522, "bertwordpiececase": 28_996, "bert-base-cased": 28_996,
    "bert-large-cased": 28_996, "roberta": 50_265, "xlm-roberta": 250_002, "facebook/bart": 50_265,
    # Microsoft.
    "phi-1": 51_200, "phi-1-5": 51_200, "phi-2": 51_200, "phi-3": 32_064, "phi-3-small": 100_352, "phi-3.5": 32_064,
    "phi-4": 100_352, "phi-4-mini": 200_064, "phi-4-multimodal": 200_064,
    # NVIDIA.
    "nemotron-3-8b": 256_000, "nemotron-4": 256_000, "nemotron4": 256_000, "nemotron-2-256k": 256_000,
    "minitron": 256_000, "nemotron-h": 131_072, "nemotron-nano": 131_072, "nemotron-3-nano": 131_072,
    "nemotron-3-super": 131_072, "nemotron-3-ultra": 131_072,
    # Ai2, BigScience, BigCode, TII, Databricks.
    "olmo-1b": 50_304, "olmo-7b": 50_304, "olmo-2": 100_352, "olmo2": 100_352, "olmo-3": 100_278, "olmoe": 50_304,
    "dolma2": 100_278, "bloom": 250_880, "bigscience/tokenizer": 250_680, "starcoder": 49_152, "starcoder2": 49_152,
    "santacoder": 49_280, "falcon": 65_024, "falcon3": 131_072, "falcon-h1": 32_784, "mosaicml/mpt": 50_432,
    "mpt-7b": 50_432, "mpt-30b": 50_432, "dbrx": 100_352,
    # Others.
    "01-ai/yi": 64_000, "yi-6b": 64_000, "yi-9b": 64_000, "yi-34b": 64_000, "baichuan": 64_000,
    "baichuan2": 125_696, "internlm-": 103_168, "internlm2": 92_544, "internlm3": 128_512, "chatglm-6b": 130_528,
    "chatglm2": 65_024, "chatglm3": 65_024, "glm-4": 151_552, "glm-4.5": 151_552, "glm-4.6": 151_552,
    "glm-5": 154_880, "command-r": 256_000, "command-a": 256_000, "aya-": 256_000, "stablelm-2": 100_352,
    "stablelm-3b": 50_304, "exaone": 102_400, "smollm": 49_152, "smollm3": 128_256, "granite-4": 100_352,
    "granite-3": 49_155, "minimax": 200_064, "kimi-k2": 163_840, "moonlight": 163_840, "jamba": 65_536,
    "aquila2": 100_008, "seed-oss": 155_136, "apertus": 131_072, "ernie-4.5": 103_424, "gpt-sw3": 64_000,
    "xverse": 100_534, "skywork": 65_519, "lfm2": 65_536, "hunyuan-a13b": 128_167,
}  # fmt: skip
"""Part of a tokenizer's name in lower case, with dashes: vocabulary of the models that are trained with it."""

_WORD = re.compile(r"[a-z0-9]")


def known_vocabulary(names: Iterable[Any]) -> int | None:
    """Return the vocabulary behind the first well known name, by the longest part of it that is known."""
    for name in names:
        lowered = name.lower().replace("_", "-").replace(" ", "-") if isinstance(name, str) else ""
        parts = [part for part in VOCABULARIES if _stands_in(part, lowered)]
        if parts:
            return VOCABULARIES[max(parts, key=len)]
    return None


def _stands_in(part: str, name: str) -> bool:
    """Tell whether a part stands in a name without a letter before it: ``opt`` is not in ``adopt``."""
    place = name.find(part)
    while place > 0 and _WORD.match(name[place - 1]):
        place = name.find(part, place + 1)
    return place >= 0
