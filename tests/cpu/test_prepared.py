"""Kernels made ready ahead: once a session is open, prompts of any length, batches and sampling need no other."""

from __future__ import annotations

from pathlib import Path

import pytest

import volumetric
from volumetric.devices.cpu.kernels import jit
from volumetric.devices.cpu.kernels.operations import ROWS
from volumetric.devices.cpu.sampling import CpuSampler
from volumetric.run.preparable import Preparable

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
LENGTHS = (60, 1, 2, 4, 5, 9, 11, 17, 40, 41, 64)
"""Rows of prompts around the borders between the forms of products."""


@pytest.fixture
def compiled(monkeypatch):
    """Names of what was compiled, or read from the cache, since the test began; operations begin anew."""
    names: list[str] = []
    load = jit._KernelCache.load_overload

    def noted(self, sig, target_context):
        names.append(self._impl.filename_base)
        return load(self, sig, target_context)

    monkeypatch.setattr(jit._KernelCache, "load_overload", noted)
    monkeypatch.setattr(ROWS, "_compiled", {})
    sampling = CpuSampler()
    monkeypatch.setattr("volumetric.devices.cpu.sampling.SAMPLING", sampling)
    monkeypatch.setattr("volumetric.generate.sampling_request.SAMPLING", sampling)
    return names


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "scheme"), [("llama", "int4"), ("qwen3_moe", None), ("falcon_h1", None)])
def test_no_call_of_a_session_compiles_anything(family, scheme, compiled, rng):
    with volumetric.load(TINY / family, device="cpu", dtype=scheme, context=160) as model:

        def ids(count: int) -> list[int]:
            return rng.integers(3, model.info.vocab_size, count).tolist()

        session = model.session()
        assert compiled
        compiled.clear()
        for length in LENGTHS:  # each prompt of its own, and then one that goes on from what the session holds
            session.stream(ids(length), max_tokens=2, temperature=0).run()
        history = ids(30)
        for more in (3, 9, 45):
            history += ids(more)
            session.stream(history, max_tokens=2, temperature=0.7, top_k=5, repetition_penalty=1.1, seed=1).run()
        session.stream(history, max_tokens=4, temperature=0, draft="lookup").run()
        for count in (3, 9, 45):
            model.generate_batch([ids(4) for _ in range(count)], max_tokens=2, temperature=0)
            model.logits(ids(count))
        session.close()
    assert compiled == []


def test_an_encoder_is_prepared_for_texts_of_all_lengths(compiled, rng):
    with volumetric.load(TINY.parent / "hf_encoders" / "bert", device="cpu") as model:
        assert isinstance(model.executable, Preparable)
        model.prepare()
        compiled.clear()
        for length in (2, 5, 20, 50):
            model.logits(rng.integers(3, 60, length))
    assert compiled == []


@pytest.mark.thorough
def test_what_is_prepared_is_not_looked_at_again(compiled):
    with volumetric.load(TINY / "llama", device="cpu") as model:
        model.prepare()
        compiled.clear()
        model.session().close()
    assert compiled == []
