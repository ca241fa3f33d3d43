"""Loaded models: logits and greedy tokens of transformers, and sessions over real caches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.generate.letters import letters, next_letter_logits
from volumetric.base.errors import GenerationError, SpecError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Model
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.layers import Embedding, MultiHeadAttention
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run.device import RunOptions

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}
WORDS = [5, 80, 33, 7, 120, 9, 64, 200, 31, 8]


def load(family: str, **options) -> volumetric.Model:
    return volumetric.load(TINY / family, device="reference", **options)


@pytest.mark.thorough
@pytest.mark.parametrize("family", sorted(path.name for path in TINY.iterdir()))
def test_logits_and_greedy_tokens_are_those_of_transformers(family):
    expected = json.loads((TINY / family / "expected.json").read_text())
    reference = np.array(expected["logits"])
    with load(family) as model:
        logits = model.logits(expected["input_ids"])[expected["positions"]]
        made = model.generate(expected["input_ids"][: expected["prompt_length"]], max_tokens=16, **GREEDY)
    np.testing.assert_allclose(logits, reference, atol=1e-4 * np.abs(reference).max())
    assert list(made.token_ids) == expected["greedy_tokens"]


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_a_reused_prefix_gives_the_tokens_of_a_fresh_start(family):
    with load(family) as model, model.session() as session:
        prompt = WORDS[:4]
        for turn in (WORDS[4:6], WORDS[6:9]):
            made = session.stream(prompt, max_tokens=6, **GREEDY).run()
            assert made.token_ids == model.generate(prompt, max_tokens=6, **GREEDY).token_ids
            prompt = [*prompt, *made.token_ids, *turn]
        back = session.stream([*WORDS[:4], 77], max_tokens=6, **GREEDY).run()
        assert back.stats.cached_tokens == 4
        assert back.token_ids == model.generate([*WORDS[:4], 77], max_tokens=6, **GREEDY).token_ids


def test_a_fork_of_a_cache_is_a_copy():
    with load("llama") as model, model.session() as session:
        session.stream(WORDS, max_tokens=1).run()
        fork = session.fork()
        one, two = session.stream([*WORDS, 3], max_tokens=5, **GREEDY), fork.stream([*WORDS, 4], max_tokens=5, **GREEDY)
        mixed = [(next(one).token_id, next(two).token_id) for _ in range(5)]
        fresh = [model.generate([*WORDS, last], max_tokens=5, **GREEDY).token_ids for last in (3, 4)]
    assert [list(ids) for ids in zip(*mixed, strict=True)] == [list(ids) for ids in fresh]


def test_greedy_and_sampled_paths_agree_over_a_cache():
    with load("qwen3") as model:
        fast = model.generate(WORDS, max_tokens=12, **GREEDY)
        slow = model.generate(WORDS, max_tokens=12, temperature=1.0, top_k=1, seed=0, ignore_eos=True)
    assert fast.token_ids == slow.token_ids


def test_long_input_goes_in_pieces_and_comes_back_whole():
    model = letters(context=4 * PREFILL_ROWS)
    ids = np.arange(2 * PREFILL_ROWS + 3) % 9
    np.testing.assert_array_equal(model.logits(ids), next_letter_logits()[ids])
    assert model.generate(ids, max_tokens=1).token_ids == ((ids[-1] + 1) % 9,)


def test_logits_check_their_ids():
    model = letters(context=8)
    with pytest.raises(GenerationError, match="9 tokens, the context holds 8"):
        model.logits([0] * 9)
    with pytest.raises(GenerationError, match="99"):
        model.logits([99])
    with pytest.raises(GenerationError, match="empty"):
        model.logits([])


@pytest.mark.parametrize(("asked", "message"), [(-1, "at least 1"), (257, "more than the 256")])
def test_an_impossible_context_is_refused(asked, message):
    with pytest.raises(SpecError, match=message):
        load("llama", context=asked)


def test_a_model_tells_how_it_was_opened():
    with load("llama", dtype="int8", context=100) as model:
        assert (model.name, model.info.device, model.info.dtype) == ("llama", "reference", "int8:g32")
        assert (model.info.context, model.info.context_length, model.info.vocab_size) == (100, 256, 320)
        assert model.config["model_type"] == "llama"
        assert model.footprint.elements == 106816
        assert 8 < model.footprint.bits_per_weight < 9
        assert model.eos_ids == {2}
        assert model.tokenizer is None
        assert model.load_seconds > 0
        assert repr(model) == "<Model 'llama' int8:g32 on reference, context 100>"


def test_the_context_is_capped_unless_it_is_asked_for():
    with load("llama") as model:
        assert model.info.context == 256


def test_a_chat_template_can_be_given(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[-1].content }}")
    for given in (tmp_path / "own.jinja", str(tmp_path / "own.jinja"), "{{ messages[-1].content }}"):
        assert load("llama", chat_template=given).loaded.chat_template is not None
    with pytest.raises(GenerationError, match=r"none\.jinja"):
        load("llama", chat_template=tmp_path / "none.jinja")


def test_an_encoder_gives_outputs_and_generates_nothing():
    layers = {
        Coord(0): Embedding(num_embeddings=9, embedding_dim=8),
        Coord(1): MultiHeadAttention(embed_dim=8, num_heads=2, causal=False),
    }
    network = Network(grid=Grid(2), layers=layers)
    loaded = dataclasses.replace(letters().loaded, network=network, params=initialise(network))
    model = Model(loaded, ReferenceDevice(), RunOptions(context=4 * PREFILL_ROWS))
    assert model.bidirectional
    ids = [1, 2] * PREFILL_ROWS
    # The first row sees the last one, so the input cannot have been cut.
    assert not np.allclose(model.logits([*ids, 3])[0], model.logits([*ids, 4])[0])
    with pytest.raises(GenerationError, match="encoder"):
        model.generate("a")


@pytest.mark.parametrize("options", [{"compute": "int3"}, {"kv_dtype": "int3"}, {"threads": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(SpecError, match=next(iter(options))):
        load("llama", **options)
