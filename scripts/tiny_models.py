"""Make tiny random models of model families, with the logits and greedy tokens that transformers gives.

python scripts/tiny_models.py DIRECTORY [NAME ...]     one directory each; without names all of `MODELS`

Needs torch and transformers, which neither the package nor its tests do: run it in an environment of its own. Each
directory has config.json, model.safetensors (float32) and expected.json, as in tests/fixtures/hf_tiny; those of
multimodal models stand in tests/fixtures/hf_multimodal.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LENGTH, PROMPT, GREEDY = 48, 12, 16
POSITIONS = (0, 11, 31, 47)
MARGIN = 0.02
"""Distance of the likeliest token from the next one, of the largest logit: devices may not decide differently."""

SIZES: Mapping[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_BOTH_KINDS: Mapping[str, Any] = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
_MAMBA: Mapping[str, Any] = {"mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_state": 8, "mamba_chunk_size": 16}
_FACTORS: Mapping[str, Any] = {
    "lm_head_multiplier": 0.3,
    "embedding_multiplier": 2.5,
    "mlp_multipliers": [0.8, 0.6],
    "key_multiplier": 0.4,
    "attention_out_multiplier": 0.9,
    "attention_in_multiplier": 1.2,
    "ssm_multipliers": [0.9, 0.5, 0.7, 1.3, 0.8],
    "ssm_in_multiplier": 1.5,
    "ssm_out_multiplier": 0.6,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 500000.0}
_GPT_OSS: Mapping[str, Any] = {
    "model_type": "gpt_oss",
    "intermediate_size": 32,
    "head_dim": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rope_parameters": {**_YARN, "truncate": False},
    **_BOTH_KINDS,
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}

MODELS: Mapping[str, Mapping[str, Any]] = {
    "cohere": {"model_type": "cohere", "logit_scale": 0.25},
    "cohere2": {"model_type": "cohere2", "logit_scale": 0.25, **_BOTH_KINDS},
    "cohere_norms": {"model_type": "cohere", "logit_scale": 0.25, "use_qk_norm": True},
    "gemma": {"model_type": "gemma", "head_dim": 16, "tie_word_embeddings": False},
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 6.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 3.0,
    },
    "lfm2": {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_multiple_of": 16},
    "mamba": {"model_type": "mamba", "state_size": 6, "num_hidden_layers": 3},
    "mamba_double": {"model_type": "mamba", "state_size": 6, "intermediate_size": 64},
    "mamba2": {"model_type": "mamba2", "num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 8, "chunk_size": 16},
    "falcon_h1": {"model_type": "falcon_h1", **_MAMBA, **_FACTORS},
    "falcon_h1_norm": {
        "model_type": "falcon_h1",
        **_MAMBA,
        "mamba_rms_norm": True,
        "mamba_norm_before_gate": True,
        "mamba_n_groups": 2,
        "mamba_proj_bias": True,
        "projectors_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "ssm_in_multiplier": 0.7,
        "attention_in_multiplier": 1.2,
    },
    "granitemoe": {
        "model_type": "granitemoe",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "intermediate_size": 24,
        "embedding_multiplier": 6.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 3.0,
    },
    "gpt_oss": _GPT_OSS,
    "gpt_oss_mxfp4": {
        **_GPT_OSS,
        "quantization_config": {"quant_method": "mxfp4"},
        "rope_parameters": {**_YARN, "rope_theta": 50.0, "truncate": False},  # the ramp's ends are no whole numbers
        "swiglu_limit": 0.5,
    },
    "llama4": {
        "model_type": "llama4_text",
        "head_dim": 8,
        "num_hidden_layers": 3,
        "intermediate_size": 40,
        "intermediate_size_mlp": 48,
        "num_local_experts": 3,
        "no_rope_layers": [1, 0, 1],
        "moe_layers": [0, 1],
        "attention_chunk_size": 16,
        "floor_scale": 5,
        "attn_scale": 0.4,
    },
    "llama4_sparse": {  # as published, but for sizes
        "model_type": "llama4_text",
        "head_dim": 8,
        "num_hidden_layers": 4,
        "intermediate_size": 24,
        "intermediate_size_mlp": 32,
        "num_local_experts": 3,
        "interleave_moe_layer_step": 2,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3_vision": {
        "model_type": "gemma3",
        "text_config": {**SIZES, "head_dim": 8, "query_pre_attn_scalar": 8, **_BOTH_KINDS},
        "vision_config": _VISION,
        "mm_tokens_per_image": 4,
    },
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        **_BOTH_KINDS,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "full_attention": {**_YARN, "attention_factor": 1.2},
        },
    },
    "phi3_longrope": {
        "model_type": "phi3",
        "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": 8,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.5],
            "long_factor": [1.5, 6.0],
        },
    },
    "qwen3_yarn": {"model_type": "qwen3", "head_dim": 16, "rope_parameters": _YARN},
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": False,
        "text_config": {**SIZES, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
        "vision_config": {**_VISION, "depth": 1, "num_heads": 2, "out_hidden_size": 32},
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 8,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 16,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    "qwen3_moe_free": {
        "model_type": "qwen3_moe",
        "head_dim": 8,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "norm_topk_prob": False,
    },
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "stablelm_parallel": {"model_type": "stablelm", "use_parallel_residual": True},
    "stablelm_norms": {"model_type": "stablelm", "qk_layernorm": True},
    "starcoder2": {"model_type": "starcoder2", "sliding_window": 16},
}
"""Name → configuration beside `SIZES`."""


def make(target: Path, values: Mapping[str, Any]) -> None:
    """Write one model; of the first seeds, that with the clearest greedy tokens."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    best: tuple[float, Any, Any, Any] | None = None
    for seed in range(20):
        torch.manual_seed(seed)
        given = values if "text_config" in values else {**SIZES, **values}
        packed = {}
        config = transformers.AutoConfig.for_model(**{k: v for k, v in given.items() if k != "quantization_config"})
        kind = "AutoModelForImageTextToText" if "text_config" in values else "AutoModelForCausalLM"
        model = getattr(transformers, kind).from_config(config, attn_implementation="eager").float().eval()
        _fill(model)
        if "quantization_config" in given:
            packed = _pack(model)
        margin, expected = _answers(model, seed)
        if best is None or margin > best[0]:
            best = margin, model, packed, expected
        if margin > MARGIN:
            break
    assert best is not None
    margin, model, packed, expected = best
    model.save_pretrained(target)
    if packed:
        _put_packed(target, packed, values["quantization_config"])
    (target / "expected.json").write_text(json.dumps(expected) + "\n")
    size = sum(path.stat().st_size for path in target.iterdir()) / 1024
    print(f"{target.name}: {size:.0f} KiB, margin {margin:.3f}, tokens {expected['greedy_tokens']}")


def _fill(model: Any) -> None:
    """Draw every parameter anew: gains and biases too would otherwise be those that change nothing."""
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = parameter.dim() == 1 or name.endswith("_norm.weight")
            if gain and "bias" not in name and "sinks" not in name:
                parameter.copy_(parameter.mean() + 0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_((0.3 if parameter.dim() == 1 else 0.18) * torch.randn_like(parameter))


def _pack(model: Any) -> dict[str, Any]:
    """Draw MXFP4 blocks for all stacks of experts, give the model what they stand for, and return them by name."""
    torch = importlib.import_module("torch")
    decode = importlib.import_module("transformers.integrations.mxfp4")._convert_moe_packed_tensors
    packed = {}
    with torch.no_grad():
        for name, stack in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                count, inner, outer = stack.shape
                blocks = torch.randint(256, (count, outer, inner // 32, 16), dtype=torch.uint8)
                scales = torch.randint(121, 124, blocks.shape[:-1], dtype=torch.uint8)
                stack.copy_(decode(blocks, scales, dtype=torch.float32))
                packed[name] = {f"{name}_blocks": blocks, f"{name}_scales": scales}
    return packed


def _put_packed(target: Path, packed: Mapping[str, Mapping[str, Any]], method: Mapping[str, Any]) -> None:
    """Put packed tensors in the place of those that they stand for."""
    files = importlib.import_module("safetensors.torch")
    tensors = files.load_file(target / "model.safetensors")
    for name, parts in packed.items():
        del tensors[name]
        tensors |= parts
    files.save_file(tensors, target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "quantization_config": method}, indent=2) + "\n")


def _answers(model: Any, seed: int) -> tuple[float, dict[str, Any]]:
    """Smallest margin of the greedy tokens, and what expected.json has."""
    torch = importlib.import_module("torch")
    generator = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(3, SIZES["vocab_size"], (LENGTH,), generator=generator)
    margin = 1.0
    with torch.no_grad():
        logits = model(ids[None]).logits[0]
        tokens, made = ids[:PROMPT], []
        for _ in range(GREEDY):
            row = model(tokens[None]).logits[0, -1]
            top = row.topk(2).values
            margin = min(margin, float((top[0] - top[1]) / row.abs().max()))
            made.append(int(row.argmax()))
            tokens = torch.cat([tokens, row.argmax()[None]])
    rows = [[round(float(value), 5) for value in logits[i]] for i in POSITIONS]
    return margin if len(set(made)) > 3 else -1.0, {
        "input_ids": ids.tolist(),
        "positions": list(POSITIONS),
        "logits": rows,
        "prompt_length": PROMPT,
        "greedy_tokens": made,
    }


def main() -> int:
    """Make the models that the command line names."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    home = Path(sys.argv[1])
    for name in sys.argv[2:] or MODELS:
        make(home / name, MODELS[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
