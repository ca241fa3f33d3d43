"""Gemma: the pre-norm decoder with GeGLU."""

from __future__ import annotations

from volumetric.loaders.gguf_family import GGUFFamily

FAMILY = GGUFFamily(
    model_type="gemma",
    auto_class="GemmaForCausalLM",
    head="shared",
    values=lambda given, file: {"hidden_act": "gelu_pytorch_tanh"},
)
