"""Logits that allow no choice end every way of decoding with an error, on every device, and leave the model usable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.generate.letters import loaded_letters, next_letter_logits
from volumetric.base.errors import GenerationError
from volumetric.generate import Model
from volumetric.layers import RNN, Dense, Embedding
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore
from volumetric.run.device import RunOptions

STATES = {"hold NaN": np.nan, r"hold \+inf": np.inf, "no token is possible": -np.inf}


def table_of(value: float) -> np.ndarray:
    """The alphabet, until ``e`` is fed: then one logit, or all of them where -inf is meant, is `value`."""
    table = next_letter_logits()
    table[4, slice(None) if value == -np.inf else 2] = value
    return table


def opened(name: str, table: np.ndarray) -> Model:
    return Model(loaded_letters(table), device(name), RunOptions(context=32))


@pytest.mark.parametrize("message", STATES)
@pytest.mark.parametrize("name", DEVICES)
def test_greedy_decoding_refuses_them(name, message):
    with opened(name, table_of(STATES[message])) as model:
        stream = model.stream("ab")
        assert [next(stream).token_id for _ in range(3)] == [2, 3, 4]
        with pytest.raises(GenerationError, match=message):
            next(stream)
        with pytest.raises(GenerationError, match=message):
            model.generate("abcde")
        assert model.generate("fg").text == "h"


@pytest.mark.parametrize("message", STATES)
@pytest.mark.parametrize("name", DEVICES)
def test_batches_refuse_them_and_name_the_prompt(name, message):
    with opened(name, table_of(STATES[message])) as model:
        stream = model.stream_batch(["fg", "abc"])
        with pytest.raises(GenerationError, match=f"prompt 1: the model's logits .*{message}"):
            list(stream)
        assert stream.generations[0].text == "h"
        assert [made.text for made in model.generate_batch(["fg", "g"])] == ["h", "h"]


@pytest.mark.parametrize("name", DEVICES)
def test_a_session_goes_on_with_the_tokens_that_it_was_fed(name):
    with opened(name, table_of(np.nan)) as model, model.session() as session:
        with pytest.raises(GenerationError, match="NaN"):
            session.stream("abc").run()
        assert session.tokens == (0, 1, 2, 3, 4)
        after = session.stream("abcf").run()
        assert (after.text, after.stats.cached_tokens) == ("gh", 3)


@pytest.mark.parametrize("name", DEVICES)
def test_networks_that_run_as_graphs_refuse_them_too(name):
    layers = {
        Coord(0): Embedding(num_embeddings=9, embedding_dim=4),
        Coord(1): RNN(input_size=4, hidden_size=4),
        Coord(2): Dense(in_features=4, out_features=9),
    }
    network = Network(grid=Grid(3), layers=layers)
    params = dict(initialise(network, 1))
    poisoned = params["0.0.0.0/weight"].values().copy()
    healthy = Model(
        replace(loaded_letters(poisoned), network=network, params=Params(params)), device(name), RunOptions()
    )
    first = healthy.generate("a", max_tokens=3, ignore_eos=True).token_ids
    poisoned[first[0]] = np.nan
    params["0.0.0.0/weight"] = WeightStore.from_array(poisoned)
    model = Model(replace(loaded_letters(poisoned), network=network, params=Params(params)), device(name), RunOptions())
    with healthy, model:
        with pytest.raises(GenerationError, match="NaN"):
            model.generate("a", max_tokens=3, ignore_eos=True)
        with pytest.raises(GenerationError, match=r"prompt 0: .*NaN"):
            model.generate_batch(["a", "a"], max_tokens=3, ignore_eos=True)
