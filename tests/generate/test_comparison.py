"""Comparing models: the figures are those of their definitions, and a model agrees with itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate import Model, load
from volumetric.generate.model_comparison import compare_models

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
IDS = [3 + 7 * i % 300 for i in range(90)]


def opened(family: str, dtype: str | None = None) -> Model:
    return load(str(TINY / family), device="reference", dtype=dtype, context=64)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_figures_are_those_of_their_definitions() -> None:
    a, b = opened("llama"), opened("llama", "int4:g32")
    found = compare_models(a, b, IDS, window=50)
    rows = [np.concatenate([m.logits(IDS[at : at + 50])[:-1] for at in (0, 50)]) for m in (a, b)]
    following = np.array([*IDS[1:50], *IDS[51:]])
    p, q = map(log_softmax, rows)
    kl = (np.exp(p) * (p - q)).sum(-1)
    centred = [x - x.mean(-1, keepdims=True) for x in rows]
    assert found.tokens == len(following) == 88
    assert found.kl == pytest.approx(kl.mean(), rel=1e-3)
    assert found.kl_max == pytest.approx(kl.max(), rel=1e-3)
    assert found.top1 == pytest.approx((rows[0].argmax(-1) == rows[1].argmax(-1)).mean())
    assert found.max_difference == pytest.approx(np.abs(centred[0] - centred[1]).max(), rel=1e-5)
    picked = [np.exp(-x[np.arange(88), following].mean()) for x in (p, q)]
    assert (found.perplexity_a, found.perplexity_b) == pytest.approx(picked, rel=1e-5)
    assert found.perplexity_a == pytest.approx(a.perplexity(IDS, window=50).value, rel=1e-5)


def test_a_model_agrees_with_itself() -> None:
    a = opened("llama")
    found = compare_models(a, a, IDS)
    assert abs(found.kl) < 1e-6
    assert (found.top1, found.max_difference) == (1, 0)


def test_what_cannot_be_compared_is_named() -> None:
    a = opened("llama")
    with pytest.raises(SpecError, match="window must be 2 to 64"):
        compare_models(a, a, IDS, window=65)
    encoder = load(str(TINY.with_name("hf_encoders") / "bert_masked"), device="reference")
    with pytest.raises(GenerationError, match="is an encoder and does not predict the next token"):
        compare_models(encoder, encoder, [5, 6, 7])
    with pytest.raises(GenerationError, match="2 tokens or more"):
        compare_models(a, a, [5])
