"""Heads beside a tied embedding: a copy is passed over, other weights count, as in transformers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.tiny import copy, expected, logits, rewrite
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import save_model

HEADS = {
    "llama": ("lm_head.weight", "model.embed_tokens.weight"),
    "gemma2": ("lm_head.weight", "model.embed_tokens.weight"),
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
}


@pytest.mark.parametrize("family", HEADS)
def test_a_copy_of_the_embedding_changes_nothing(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head, embedding = HEADS[family]
    directory = copy(family, tmp_path)
    rewrite(directory, lambda tensors: tensors.update({head: tensors[embedding].copy()}))
    with caplog.at_level(logging.WARNING):
        model = open_model(str(directory))
    ids = expected(family)["input_ids"]
    np.testing.assert_array_equal(logits(model, ids), logits(open_model(str(copy(family, tmp_path / "x"))), ids))
    assert not caplog.records


@pytest.mark.thorough
@pytest.mark.parametrize("family", HEADS)
def test_a_head_of_its_own_counts_and_is_told(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head, embedding = HEADS[family]

    def negate(tensors: dict[str, Any]) -> None:
        tensors[head] = tensors[embedding].copy()
        tensors[head][-1] *= -1  # one row alone differs, the last one that is compared

    directory = copy(family, tmp_path)
    rewrite(directory, negate)
    with caplog.at_level(logging.WARNING):
        model = open_model(str(directory))
    assert "they are not tied" in caplog.text
    ids = expected(family)["input_ids"]
    tied, untied = logits(open_model(str(copy(family, tmp_path / "x"))), ids), logits(model, ids)
    np.testing.assert_array_equal(untied[:, :-1], tied[:, :-1])
    np.testing.assert_allclose(untied[:, -1], -tied[:, -1], rtol=1e-6)
    save_model(tmp_path / "again", model, "hf")  # what is written says so, and needs no warning
    caplog.clear()
    np.testing.assert_array_equal(logits(open_model(str(tmp_path / "again")), ids), untied)
    assert not caplog.records
