"""Compare parameter counts with transformers' own: ``python -m benchmarks.model_counts [TYPE ...]``.

Every type of causal model that transformers knows is built from its default config on the meta device; the same config
is read as a file. A type is equal, refused with a reason, or different; those that transformers cannot build are apart.
"""

import argparse
import json
from collections import Counter

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from charllm.errors import SpecError
from charllm.spec.fields import read
from charllm.spec.model import Model, fill_model
from charllm.spec.readers.huggingface import read_hf_config
from charllm.workload.parameters import count_parameters


def compare(model_type: str) -> str:
    """Say how a type's default config is read."""
    config = CONFIG_MAPPING[model_type]()
    try:
        reading = read_hf_config(json.loads(config.to_json_string(use_diff=False)), f"{model_type}.json")
        if reading.unmodelled:
            return f"refused: {reading.unmodelled[0].shown()}"
        counted = count_parameters(read(Model, fill_model(dict(reading.request["model"])), "model"))
    except SpecError as error:
        return f"refused: {error}"
    try:
        built = _build(config)
    except Exception as error:
        return f"not built: {type(error).__name__}"
    return "equal" if counted == built else f"different: {counted:.0f}, transformers {built}"


def _build(config: object) -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return sum({id(weight): weight.numel() for weight in model.parameters()}.values())


def main() -> None:
    """Print a line for each type that is not equal, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    verdicts = {}
    for model_type in parser.parse_args().types:
        try:
            verdicts[model_type] = compare(model_type)
        except Exception as error:
            verdicts[model_type] = f"no default config: {type(error).__name__}"
    for model_type, verdict in verdicts.items():
        if verdict != "equal":
            print(f"{model_type}: {verdict[:160]}")
    print(dict(Counter(verdict.partition(":")[0] for verdict in verdicts.values())))


if __name__ == "__main__":
    main()
