"""Types of Hugging Face models that are not read, and what would have to be modelled to read them."""

_TYPES = {
    "an encoder and a decoder in one model": """
        bart bigbird_pegasus blenderbot blenderbot-small marian mbart moshi mt5 musicgen musicgen_melody mvp pegasus
        plbart prophetnet switch_transformers t5 t5gemma trocr umt5 whisper
    """,
    "an encoder with token types and a head of several layers": """
        bert bert-generation big_bird camembert data2vec-text electra ernie git megatron-bert modernbert-decoder rembert
        roberta roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod
    """,
    "attention with relative positions of its own": "cpmant reformer xlnet",
    "attention to chosen blocks": "minimax_m3 minimax_m3_vl minimax_m3_vl_text",
    "attention with masks that are learned": "doge",
    "block-sparse attention": "phi3small",
    "blocks shared between layers": "zamba2",
    "bytes in patches of unequal length": "blt",
    "compressed attention and several residual streams": "deepseek_ref deepseek_v4",
    "convolutions inside attention": "zaya",
    "cross attention": "mllama mllama_text_model",
    "differences of two attentions": "diffllama",
    "embeddings of each layer and several residual streams": "gemma3n gemma3n_text",
    "experts of attention": "jetmoe",
    "gates of each head": "lfm3",
    "head counts that differ from layer to layer": "laguna step3p5 step3p7",
    "its recurrent layers": "plamo2 recurrent_gemma rwkv rwkv7 xlstm",
    "keys and values of another model": "gemma4_assistant gemma4_unified_assistant",
    "keys and values shared between layers": "hunyuan",
    "Kimi delta attention": "bailing_hybrid kimi_linear",
    "latent attention that differs from layer to layer": "dots3_note dots3_note_text",
    "layers that are run again and again": "hrm_text",
    "Mamba-1 layers": "falcon_mamba jamba mamba",
    "Mamba-1 layers and shared blocks": "zamba",
    "a model without attention": "mamba2",
    "normalisation with gates of its own": "axk2",
    "one normalisation, after each block": "openai-gpt",
    "several residual streams": "hy_v4",
    "short convolutions beside attention": "inkling2_text inkling_text",
    "two attentions in a layer and experts that do nothing": "longcat_flash",
    "weights of fewer than two bits": "bitnet",
    "widths that differ from layer to layer": "nemotron-nas openelm",
}
REFUSED = {model_type: what for what, types in _TYPES.items() for model_type in types.split()}
"""Model type: what is not modelled."""
