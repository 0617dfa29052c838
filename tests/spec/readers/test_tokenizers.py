"""Vocabularies behind the names of tokenizers."""

import pytest

from charllm.spec.readers.tokenizers import VOCABULARIES, known_vocabulary


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("GPT2BPETokenizer", 50_257),
        ("/data/llama/llama_tokenizer.model", 32_000),
        ("meta-llama/Llama-2-7b-hf", 32_000),
        ("meta-llama/Meta-Llama-3-70B", 128_256),
        ("meta-llama/Llama-4-Scout-17B-16E", 202_048),
        ("codellama/CodeLlama-7b-hf", 32_016),
        ("mistralai/Mistral-7B-v0.1", 32_000),
        ("mistralai/Mistral-7B-v0.3", 32_768),
        ("mistralai/Mistral-Nemo-Base-2407", 131_072),
        ("Qwen/Qwen2.5-0.5B", 151_936),
        ("Qwen/Qwen2.5-72B-Instruct", 152_064),
        ("Qwen/Qwen3-8B", 151_936),
        ("Qwen/Qwen3.5-27B", 248_320),
        ("deepseek-ai/DeepSeek-V2-Lite", 102_400),
        ("deepseek-ai/DeepSeek-V3", 129_280),
        ("deepseek-ai/DeepSeek-R1", 129_280),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 128_256),
        ("deepseek-ai/deepseek-coder-6.7b-base", 32_256),
        ("EleutherAI/gpt-neox-20b", 50_277),
        ("bigscience/bloom", 250_880),
        ("tiiuae/falcon-40b", 65_024),
        ("google/gemma-2-9b", 256_000),
        ("google/gemma-3-27b-it", 262_208),
        ("nvidia/Nemotron-4-340B-Base", 256_000),
        ("allenai/OLMo-2-1124-7B", 100_352),
        ("baichuan-inc/Baichuan2-13B-Base", 125_696),
        ("facebook/opt-6.7b", 50_272),
        ("microsoft/phi-4", 100_352),
        ("cl100k_base", 100_277),
    ],
)
def test_a_well_known_name_has_its_vocabulary(name: str, tokens: int) -> None:
    assert known_vocabulary([name]) == tokens


def test_the_first_name_that_is_known_counts() -> None:
    assert known_vocabulary([None, 7, "HuggingFaceTokenizer", "Qwen/Qwen3-8B", "gpt2"]) == 151_936


@pytest.mark.parametrize("name", ["", "my-tokenizer", "adopt-a-tokenizer", "sentencepiece", "bpe", "xgpt2"])
def test_a_name_that_is_not_known_has_none(name: str) -> None:
    assert known_vocabulary([name]) is None


def test_parts_are_written_as_names_are_compared() -> None:
    assert all(part == part.lower().replace("_", "-") and tokens > 10_000 for part, tokens in VOCABULARIES.items())
