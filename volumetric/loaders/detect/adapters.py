"""Adapters: small matrices that are added to a model's weights and are no model, known by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_OURS: Final = "it goes beside its model: --lora DIRECTORY, or load(model, lora=[directory])"
_NOT_OURS: Final = "adapters are read as PEFT saves them: adapter_config.json beside adapter_model.safetensors"
_KINDS: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (re.compile(r".*\.lora_(?:[AB]|embedding_[AB])(?:\.\w+)?(?:\.weight)?"), "a LoRA adapter of PEFT", _OURS),
    (re.compile(r".*\.lora_magnitude_vector(?:\..*)?"), "a DoRA adapter of PEFT", _OURS),
    (re.compile(r".*\.lora_(?:up|down)\.weight"), "a LoRA adapter in kohya's names", _NOT_OURS),
    (re.compile(r".*\.lora_[ab]"), "a LoRA adapter of mlx-lm", _NOT_OURS),
    (re.compile(r".*\.(?:hada_w[12]_[ab]|lokr_w[12](?:_[ab])?)"), "an adapter of LyCORIS", _NOT_OURS),
    (
        re.compile(r".*\.(?:ia3_l|vera_lambda_[bd])(?:\.\w+)?(?:\.weight)?"),
        "an adapter of PEFT that is no LoRA",
        _NOT_OURS,
    ),
)


def adapter_of(names: Iterable[str]) -> tuple[str, str] | None:
    """Return what adapter tensors are of by their names, and what to do with it; None where they are of none."""
    listed = list(names)
    for pattern, kind, advice in _KINDS:
        if any(pattern.fullmatch(name) for name in listed):
            return kind, advice
    return None
