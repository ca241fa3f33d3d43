"""Qwen3."""

from __future__ import annotations

from volumetric.loaders.gguf_family import HEAD_NORMS, PRE_NORM_LAYER, GGUFFamily

FAMILY = GGUFFamily(model_type="qwen3", auto_class="Qwen3ForCausalLM", inner={**PRE_NORM_LAYER, **HEAD_NORMS})
