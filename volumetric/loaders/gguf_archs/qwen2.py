"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from volumetric.loaders.gguf_family import GGUFFamily

FAMILY = GGUFFamily(
    model_type="qwen2",
    auto_class="Qwen2ForCausalLM",
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
)
