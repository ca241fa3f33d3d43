"""Families on the fast devices: logits and greedy tokens of transformers, from the tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import volumetric

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
NAMES = sorted(path.parent.name for path in TINY.glob("*/expected.json"))
DIFFERENT = ("cohere2", "gpt_oss_mxfp4", "lfm2", "llama4", "qwen2_moe")
"""Data flows that no other test has on a GPU: side by side, with a convolution, with sinks, mixed, shared.

`test_state_space_packed` has those with a scan.
"""


@pytest.mark.parametrize(
    ("name", "device"), [*((name, "cpu") for name in NAMES), *((name, "gpu") for name in DIFFERENT)]
)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, device: str) -> None:
    expected = json.loads((TINY / name / "expected.json").read_text())
    reference = np.array(expected["logits"])
    with volumetric.load(TINY / name, device=device, compute="float32", kv_dtype="float32") as model:
        logits = model.logits(expected["input_ids"])[expected["positions"]]
        prompt = expected["input_ids"][: expected["prompt_length"]]
        made = model.generate(prompt, max_tokens=16, temperature=0.0, ignore_eos=True)
    assert np.abs(logits - reference).max() < 1e-4 * np.abs(reference).max()
    assert list(made.token_ids) == expected["greedy_tokens"]


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["reference", "cpu", "gpu"])
def test_short_convolutions_go_on_from_the_rows_before_them(device: str) -> None:
    ids = np.array([7, 30, 5, 81, 44, 9, 12, 3, 50], np.int32)
    with volumetric.load(TINY / "lfm2", device=device, context=32) as model:
        run = model.executable
        whole = run.forward(run.new_state(), ids, last_only=False)
        state = run.new_state()
        pieces = [run.forward(state, ids[a:b], last_only=False) for a, b in ((0, 1), (1, 4), (4, 5))]
        twin, saved = state.fork(), run.restore(state.save())
        for each in (state, twin, saved):
            rest = run.forward(each, ids[5:], last_only=False)
            np.testing.assert_allclose(np.concatenate([*pieces, rest]), whole, atol=2e-5)
        state.trim(0)
        np.testing.assert_allclose(run.forward(state, ids[:5], last_only=False), whole[:5], atol=2e-5)


def test_a_rotation_by_context_is_one_for_the_whole_sequence() -> None:
    ids = [7, 30, 5, 81, 44, 9]
    made = {}
    for device in ("reference", "cpu"):
        for context in (8, 16):
            with volumetric.load(TINY / "phi3_longrope", device=device, context=context) as model:
                made[device, context] = model.logits(ids)
    for context in (8, 16):
        np.testing.assert_allclose(made["cpu", context], made["reference", context], atol=1e-4)
    assert np.abs(made["cpu", 8] - made["cpu", 16]).max() > 1e-2


def test_chunks_and_growing_queries_run_in_any_cut() -> None:
    expected = json.loads((TINY / "llama4" / "expected.json").read_text())
    ids, reference = np.array(expected["input_ids"], np.int32), np.array(expected["logits"])
    with volumetric.load(TINY / "llama4", device="cpu", compute="float32", kv_dtype="float32") as model:
        for cuts in ([1] * 48, [16, 16, 16], [15, 1, 17, 15], [3, 30, 15]):
            state, made, at = model.executable.new_state(), [], 0
            for count in cuts:
                made.append(model.executable.forward(state, ids[at : at + count], last_only=False).copy())
                at += count
            found = np.concatenate(made)[expected["positions"]]
            assert np.abs(found - reference).max() < 1e-5 * np.abs(reference).max()
