"""Rotary embedding: frequencies of every kind of scaling are those of transformers, and depend on the context alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.graph.numeric.rope import inverse_frequencies, rotate
from volumetric.layers import MultiHeadAttention, Parallel, Rope
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.network_json import network_from_json, network_to_json
from volumetric.run.lower import lower

CASES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "torch" / "rope.json").read_text())
LONG = Rope(dim=4, scaling="longrope", original_context=8, short_factors=(1.0, 1.5), long_factors=(2.0, 3.0))


@pytest.mark.parametrize("name", CASES)
def test_frequencies_are_those_of_transformers(name: str) -> None:
    case = CASES[name]
    config = Config({"max_position_embeddings": 4096, "rope_parameters": case["rope_parameters"]}, "config.json")
    rope = read_rope(config, 16).for_context(case["length"])
    np.testing.assert_allclose(inverse_frequencies(rope), case["inverse_frequencies"], rtol=3e-6)
    assert rope.attention_factor == pytest.approx(case["attention_factor"], rel=1e-6)


def test_an_attention_factor_makes_scores_grow_by_its_square() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 6))
    plain, grown = (rotate(Rope(dim=4, attention_factor=f), x, np.arange(3)) for f in (1.0, 1.5))
    np.testing.assert_allclose(grown[..., :4], 1.5 * plain[..., :4])
    np.testing.assert_array_equal(grown[..., 4:], x[..., 4:])


def test_only_some_rotations_depend_on_the_context() -> None:
    assert LONG.for_context(8).for_context(9) == LONG.for_context(9) != LONG
    yarn = Rope(dim=4, scaling="yarn", factor=2.0)
    assert yarn.for_context(10**6) is yarn


def test_lowering_for_a_context_reaches_layers_in_containers() -> None:
    attention = MultiHeadAttention(embed_dim=8, num_heads=2, rope=LONG)
    both = Parallel(branches=(attention, attention), combine="grid_scatter", grid=(1, 1, 2))
    network = Network(grid=Grid(1, 1, 1, 1), layers={Coord(0, 0, 0, 0): both}, input_shape=(8,), input_dtype="float32")
    short, long = (lower(network, context).steps[0].attrs["spec"].branches[1].rope.context for context in (None, 100))
    assert (short, long) == (0, 100)
    assert network_from_json(network_to_json(network)) == network


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 3}, "dim must be even"),
        ({"dim": 4, "scaling": "ntk"}, "unknown scaling"),
        ({"dim": 4, "factor": 0.5}, "factor must be at least 1"),
        ({"dim": 4, "factor": float("nan")}, "factor must be at least 1"),
        ({"dim": 4, "attention_factor": 0.0}, "attention_factor"),
        ({"dim": 4, "original_context": 0}, "original_context"),
        ({"dim": 4, "scaling": "yarn", "beta_slow": 0.0}, "beta_fast >= beta_slow"),
        ({"dim": 4, "scaling": "yarn", "base": 1.0}, "a base above 1"),
        ({"dim": 2, "scaling": "dynamic"}, "more than one pair"),
        ({"dim": 4, "scaling": "longrope", "short_factors": (1.0, 2.0)}, "2 positive long_factors"),
        ({"dim": 4, "scaling": "longrope", "short_factors": (1.0, -2.0), "long_factors": (1.0, 1.0)}, "short_factors"),
        ({"dim": 4, "scaling": "proportional", "turning": 3}, "0 … 2 pairs"),
    ],
)
def test_rotations_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Rope(**fields)
