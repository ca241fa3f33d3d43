"""Names of the parts of layers in torch, Hugging Face, timm, Keras and ONNX, and of adapters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

QUERY: Final = ("q_proj", "query", "q_lin", "wq", "to_q", "q")
KEY: Final = ("k_proj", "key", "k_lin", "wk", "to_k", "k")
VALUE: Final = ("v_proj", "value", "v_lin", "wv", "to_v", "v")
FUSED_QKV: Final = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv")
OUTPUT: Final = ("o_proj", "out_proj", "out_lin", "wo", "to_out", "dense", "c_proj", "proj", "Wo")
GATE: Final = ("gate_proj", "w1", "gate", "fc12")
UP: Final = ("up_proj", "w3", "up", "c_fc", "dense_h_to_4h", "fc1", "lin1", "linear1", "fc11")
DOWN: Final = ("down_proj", "w2", "down", "c_proj", "dense_4h_to_h", "fc2", "lin2", "linear2", "Wo")
FUSED_GATE_UP: Final = ("gate_up_proj", "w13", "gate_up", "Wi")
QUERY_NORM: Final = ("q_norm", "q_layernorm", "query_norm", "q_ln")
KEY_NORM: Final = ("k_norm", "k_layernorm", "key_norm", "k_ln")
EXPERTS: Final = ("experts",)
ROUTER: Final = ("gate", "router", "gate_network")
INPUT_SIDE: Final = ("c_attn", "c_proj", "c_fc")
"""Modules of GPT-2 that store their matrices as ``[in, out]`` (Conv1D)."""

EMBEDDING: Final = re.compile(
    r"(?:^|[._/])(?!embed_out)(?:\w*embed\w*|emb|wte|wpe|shared|token_type|tok_\w+|lookup\w*|word_emb\w*|char_emb\w*)$"
)
POSITIONS: Final = re.compile(
    r"(?:^|[._/])(?:wpe|embed_positions|pos_embed|position\w*_embeddings?|positional_embedding)$"
)
TRANSPOSED_CONVOLUTION: Final = re.compile(r"transpos|deconv|upconv|up_conv|conv_up", re.IGNORECASE)
GROUPED_NORM: Final = re.compile(r"(?:^|[._/])(?:gn\d*|group_?norm\w*|instance_?norm\w*)$", re.IGNORECASE)

MASKED_HEAD: Final = re.compile(r"cls\.predictions|vocab_transform|lm_head\.dense|head\.dense")
"""Modules of masked language model heads."""
STACK: Final = re.compile(r"(?:^|.*[._])(?:layers|layer|h|blocks|block)[._](\d+)[._](.+)")
"""Matches a tensor of a stack of blocks: the number of the block, and the name in it."""

BATCH_NORM: Final[Mapping[str, tuple[str, ...]]] = {
    "weight": ("weight", "gamma"),
    "bias": ("bias", "beta"),
    "running_mean": ("running_mean", "moving_mean"),
    "running_var": ("running_var", "moving_variance"),
}
"""Parameter of a batch norm → its names in torch and Keras."""


_OURS: Final = "load it with its model: --lora DIRECTORY, or load(model, lora=[directory])"
_NOT_OURS: Final = "convert it to PEFT's format: adapter_config.json and adapter_model.safetensors"
_KINDS: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (re.compile(r".*\.lora_(?:[AB]|embedding_[AB])(?:\.\w+)?(?:\.weight)?"), "a LoRA adapter of PEFT", _OURS),
    (re.compile(r".*\.lora_magnitude_vector(?:\..*)?"), "a DoRA adapter of PEFT", _OURS),
    (re.compile(r".*\.lora_(?:up|down)\.weight"), "a LoRA adapter in kohya's names", _NOT_OURS),
    (re.compile(r".*\.lora_[ab]"), "a LoRA adapter of mlx-lm", _NOT_OURS),
    (re.compile(r".*\.(?:hada_w[12]_[ab]|lokr_w[12](?:_[ab])?)"), "an adapter of LyCORIS", _NOT_OURS),
    (
        re.compile(r".*\.(?:ia3_l|vera_lambda_[bd])(?:\.\w+)?(?:\.weight)?"),
        "an adapter of PEFT that is not LoRA",
        _NOT_OURS,
    ),
)


def adapter_of(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the kind of adapter by tensor names, and what to do with it; None if they are not an adapter."""
    listed = list(names)
    for pattern, kind, advice in _KINDS:
        if any(pattern.fullmatch(name) for name in listed):
            return kind, advice
    return None
