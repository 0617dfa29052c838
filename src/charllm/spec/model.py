"""The network that is trained: its dimensions and which blocks it is made of."""

from dataclasses import dataclass

from charllm.errors import SpecError
from charllm.spec.fields import check_fields, choice, count, flag, number, text

GATED_ACTIVATIONS = ("swiglu", "geglu")
ACTIVATIONS = (*GATED_ACTIVATIONS, "gelu", "relu", "squared-relu", "silu")
NORMS = {"rmsnorm": 1, "layernorm": 2, "rmsnorm-plain": 0, "layernorm-scale": 1, "layernorm-plain": 0}
"""Kind of normalisation: weights for each channel. A LayerNorm has a shift beside its scale, a plain norm neither."""
POSITIONS = ("rope", "learned", "alibi", "none")
BIASES = ("none", "qkv", "attention", "mlp", "all")
QK_NORM_WEIGHTS = ("shared", "each", "none")
BALANCINGS = {"aux-loss": 1.0, "bias": 0.5}
"""Method: how uneven it leaves experts over what a loss leaves. Assumed for biases: over a whole set they leave 0.04
where a loss leaves 0.5 to 0.7 (arXiv:2408.15664, table 2), but texts of one microbatch are alike, whatever balances."""
ATTENTIONS = ("gqa", "mla")
WINDOWS = ("sliding", "chunked")
PARTS = {"M": "Mamba-2", "*": "attention", "-": "feed-forward", "E": "experts"}
"""What a layer of a hybrid model is, by its letter in the pattern (Nemotron-H's and Megatron's letters)."""
MIXERS = {
    "*": "attention",
    "w": "windowed attention",
    "M": "Mamba-2",
    "D": "gated delta rule",
    "L": "lightning",
    "H": "attention beside Mamba-2",
    "C": "short convolution",
}
"""What mixes the tokens of a layer that also has a feed-forward block, by its letter in `mixers`."""
RECURRENT = ("M", "D", "L", "H")
"""Mixers with a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder (or encoder) transformer, dense or sparse, or a hybrid of attention and Mamba-2."""

    name: str = text("Name of the model.")
    layers: int = count("Transformer layers.", 1, 4096)
    pattern: str = text(
        "Hybrid models: kind of each layer, M Mamba-2, * attention, - feed-forward, E experts; empty: not a hybrid.", ""
    )
    hidden: int = count("Width of the residual stream.", 1, 262_144)
    ffn: int = count(
        "Width of the feed-forward block; with experts and without expert_ffn, of one expert.", 1, 1_048_576
    )
    heads: int = count("Query heads.", 1, 4096)
    kv_heads: int = count("Key and value heads (equal to heads: MHA; fewer: GQA).", 1, 4096)
    head_dim: int = count("Width of a head's query and key (MLA: of the part without position).", 1, 4096)
    vocab: int = count("Tokens in the vocabulary; 0: no embedding and no loss.", 0, 16_777_216)
    seq_length: int = count("Default sequence length in training.", 1, 16_777_216, 2048)
    activation: str = choice("Non-linearity of the feed-forward block.", ACTIVATIONS, "swiglu")
    norm: str = choice("Kind of normalisation.", tuple(NORMS), "rmsnorm")
    norms_per_layer: int = count("Normalisations of the residual stream in a layer.", 1, 8, 2)
    qk_norm: bool = flag("Whether queries and keys are normalised.", False)
    qk_norm_weights: str = choice(
        "Weights of the norms of queries and keys: the same for all heads, of each head its own, or none.",
        QK_NORM_WEIGHTS,
        "shared",
    )
    position: str = choice("Kind of position encoding.", POSITIONS, "rope")
    bias: str = choice("Which linear layers have a bias.", BIASES, "none")
    tied_embeddings: bool = flag("Whether the LM head shares the embedding's weight.", False)
    dropout_fraction: float = number("Dropout after attention and feed-forward; 0: none.", 0.0, 0.9, 0.0)
    causal: bool = flag("Whether attention is causal.", True)
    window: int = count("Tokens that a windowed layer attends to; 0: full attention in all layers.", 0, 16_777_216, 0)
    window_kind: str = choice(
        "Kind of window: sliding (the last tokens) or chunked (tokens of the same chunk).", WINDOWS, "sliding"
    )
    window_heads: int = count("Query heads of windowed layers; 0: as in the others.", 0, 4096, 0)
    window_kv_heads: int = count("Key and value heads of windowed layers; 0: as in the others.", 0, 4096, 0)
    window_head_dim: int = count("Width of a head in windowed layers; 0: as in the others.", 0, 4096, 0)
    window_sinks: bool = flag("Whether only windowed layers have sinks.", False)
    shared_values: bool = flag("Whether keys are values, too, in layers without a window.", False)
    shared_kv_layers: int = count("Last layers that attend to keys and values of layers before them.", 0, 4096, 0)
    shared_kv_ffn: int = count("Width of the feed-forward block of those layers; 0: as in the others.", 0, 1_048_576, 0)
    layer_input: int = count("Width of an embedding of tokens that every layer has of its own; 0: none.", 0, 4096, 0)
    full_attention_every: int = count("With a window: one layer in this many has full attention.", 1, 4096, 1)
    mixers: str = text(
        "What mixes the tokens of each layer, repeated to the last: * attention, w windowed attention, M Mamba-2, "
        "D gated delta rule, L lightning attention, H attention beside Mamba-2, C short convolution; empty: attention.",
        "",
    )  # fmt: skip
    attention_gate: bool = flag("Whether attention output is multiplied by a gate projected beside queries.", False)
    attention_sinks: bool = flag("Whether each head has a learned sink logit.", False)
    layer_vectors: int = count(
        "Further weights of each layer in vectors, such as biases without a field; other kernels read them.",
        0,
        16_777_216,
        0,
    )
    sparse_vectors: int = count(
        "Further weights of each sparse layer in vectors, such as a router's bias.", 0, 16_777_216, 0
    )
    end_vectors: int = count(
        "Further weights at both ends in vectors, such as a bias of the LM head.", 0, 16_777_216, 0
    )
    attention: str = choice("Grouped queries, or DeepSeek's latent attention.", ATTENTIONS, "gqa")
    q_lora_rank: int = count("MLA: rank of the query compression; 0: queries are not compressed.", 0, 65_536, 0)
    kv_lora_rank: int = count("MLA: rank of the key-value compression.", 0, 65_536, 0)
    rope_head_dim: int = count("MLA: width of the part of a head that carries position.", 0, 4096, 0)
    v_head_dim: int = count("Width of a head's value; 0: as its query and key.", 0, 4096, 0)
    index_heads: int = count("DeepSeek sparse attention: heads of the indexer; 0: no indexer.", 0, 4096, 0)
    index_head_dim: int = count("DeepSeek sparse attention: width of an indexer's head.", 0, 4096, 0)
    index_topk: int = count("DeepSeek sparse attention: tokens that each query attends to.", 0, 16_777_216, 0)
    experts: int = count("Routed experts of a sparse layer; 0: dense.", 0, 65_536, 0)
    topk: int = count("Experts per token.", 0, 4096, 0)
    expert_ffn: int = count("Width of one routed expert.", 0, 1_048_576, 0)
    expert_groups: int = count("Groups of neighbouring experts; a token chooses groups first.", 1, 65_536, 1)
    balancing: str = choice(
        "How a router's load is balanced: by a loss, or by biases of its scores.", tuple(BALANCINGS), "aux-loss"
    )
    groups_per_token: int = count("Groups that a token may choose experts from.", 1, 65_536, 1)
    shared_ffn: int = count("Width of all shared experts together; 0: none.", 0, 1_048_576, 0)
    expert_latent: int = count("Width that tokens are projected to for routed experts; 0: none.", 0, 262_144, 0)
    ssm_heads: int = count("Mamba-2 and linear attention: heads (of values).", 0, 65_536, 0)
    ssm_head_dim: int = count("Mamba-2 and linear attention: width of a head (of values).", 0, 4096, 0)
    ssm_state: int = count("Mamba-2: state for each channel of a head; linear attention: width of a key.", 0, 65_536, 0)
    ssm_groups: int = count(
        "Mamba-2: groups of heads that share the B and C projections of the state; linear attention: key heads.",
        1,
        65_536,
        1,
    )
    ssm_conv: int = count("Width in tokens of the convolution before the scan; 1: no convolution.", 1, 64, 4)
    dense_layers: int = count("Number of first layers that are dense in a sparse model.", 0, 4096, 0)
    sparse_layers: str = text("Which layers have experts (E, else -), repeated; empty: all after dense_layers.", "")
    mtp_layers: int = count("Multi-token-prediction layers after the last one.", 0, 16, 0)
    mtp_pattern: str = text("Hybrid: parts of one multi-token-prediction layer; empty: as the last layer.", "")
    stated_params: float | None = number("Parameters stated by the publisher.", 1, 1e15, None)
    stated_active_params: float | None = number("Active parameters per token stated by the publisher.", 1, 1e15, None)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.heads % self.kv_heads:
            raise SpecError("kv_heads", self.kv_heads, f"a divisor of heads ({self.heads})")
        if self.experts and not 1 <= self.topk <= self.experts:
            raise SpecError("topk", self.topk, f"1 to experts ({self.experts})")
        if self.experts and not self.expert_ffn:
            raise SpecError("expert_ffn", self.expert_ffn, "the width of one expert")
        if self.groups_per_token > self.expert_groups:
            raise SpecError("groups_per_token", self.groups_per_token, f"1 to expert_groups ({self.expert_groups})")
        if not self.experts and (self.topk or self.expert_ffn or self.shared_ffn or self.dense_layers):
            raise SpecError("experts", 0, "at least 1 when topk, expert_ffn, shared_ffn or dense_layers is given")
        if self.dense_layers > self.layers:
            raise SpecError("dense_layers", self.dense_layers, f"0 to layers ({self.layers})")
        if self.attention == "mla" and not (self.kv_lora_rank and self.rope_head_dim and self.v_head_dim):
            raise SpecError(
                "kv_lora_rank", self.kv_lora_rank, "with mla: kv_lora_rank, rope_head_dim and v_head_dim >= 1"
            )
        if self.expert_latent and not self.experts:
            raise SpecError("expert_latent", self.expert_latent, "0 without experts")
        if self.index_heads and not (self.attention == "mla" and self.index_head_dim and self.index_topk):
            raise SpecError("index_heads", self.index_heads, "0 without mla, index_head_dim and index_topk")
        if self.shared_kv_layers >= self.layers or (self.shared_kv_ffn and not self.shared_kv_layers):
            raise SpecError("shared_kv_layers", self.shared_kv_layers, f"fewer than layers ({self.layers})")
        if self.shared_kv_layers and self.attention == "mla":
            raise SpecError("shared_kv_layers", self.shared_kv_layers, "0 with mla")
        if self.pattern or self.mtp_pattern:
            self._check_patterns()
        self._check_mixers()

    def _check_patterns(self) -> None:
        letters = ", ".join(f"{letter} ({part})" for letter, part in PARTS.items())
        for name in ("pattern", "mtp_pattern"):
            if not set(getattr(self, name)) <= set(PARTS):
                raise SpecError(name, getattr(self, name), f"made of {letters}")
        if len(self.pattern) != self.layers:
            raise SpecError("pattern", self.pattern, f"one letter for each of the {self.layers} layers")
        parts = {*self.pattern, *self.mtp_pattern}
        if ("E" in parts) != bool(self.experts):
            raise SpecError("experts", self.experts, "at least 1 with E in the pattern, else 0")
        if self.dense_layers or self.window or self.mixers or self.sparse_layers:
            raise SpecError("pattern", self.pattern, "empty with dense_layers, sparse_layers, mixers or a window")

    def _check_mixers(self) -> None:
        letters = ", ".join(f"{letter} ({mixer})" for letter, mixer in MIXERS.items())
        if not set(self.mixers) <= set(MIXERS) or len(self.mixers) > self.layers:
            raise SpecError("mixers", self.mixers, f"at most {self.layers} letters: {letters}")
        if not self.window and (
            "w" in self.mixers or self.window_heads or self.window_kv_heads or self.window_head_dim
        ):
            raise SpecError("window", self.window, "at least 1 with w in mixers, or with heads of windowed layers")
        if (self.window_heads or self.heads) % (self.window_kv_heads or self.kv_heads):
            heads = self.window_heads or self.heads
            raise SpecError("window_kv_heads", self.window_kv_heads, f"a divisor of windowed layers' heads ({heads})")
        recurrent = {*self.mixers, *self.pattern, *self.mtp_pattern} & set(RECURRENT)
        if recurrent and not (self.ssm_heads and self.ssm_head_dim and self.ssm_state):
            names = ", ".join(MIXERS[letter] for letter in sorted(recurrent))
            raise SpecError("ssm_heads", self.ssm_heads, f"with {names}: ssm_heads, ssm_head_dim and ssm_state >= 1")
        if self.ssm_heads % self.ssm_groups:
            raise SpecError("ssm_groups", self.ssm_groups, f"a divisor of ssm_heads ({self.ssm_heads})")
        if self.sparse_layers and (not self.experts or self.dense_layers or not set(self.sparse_layers) <= {"E", "-"}):
            raise SpecError("sparse_layers", self.sparse_layers, "letters E and -, with experts and no dense_layers")

    def experts_on_rank(self, ep: int) -> int:
        """Return how many experts one of `ep` ranks holds."""
        return max(1, self.experts // ep)

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block multiplies two projections."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def query_head_dim(self) -> int:
        """Width of one query or key head, position part included."""
        return self.head_dim + self.rope_head_dim if self.attention == "mla" else self.head_dim

    @property
    def value_head_dim(self) -> int:
        """Width of one value head."""
        return self.v_head_dim or self.head_dim


def fill_model(table: dict[str, object]) -> dict[str, object]:
    """Fill what a model table may leave out: head counts and widths that follow from the others."""
    filled = dict(table)
    heads, hidden = filled.get("heads"), filled.get("hidden")
    filled.setdefault("kv_heads", heads)
    if "head_dim" not in filled and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        if hidden % heads:
            raise SpecError("model.head_dim", None, f"give it: hidden {hidden} is not a multiple of heads {heads}")
        filled["head_dim"] = hidden // heads
    if filled.get("experts"):
        filled.setdefault("expert_ffn", filled.get("ffn"))
    return {key: value for key, value in filled.items() if value is not None}
