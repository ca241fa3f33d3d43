"""What layers declare of their states, and what the reference leaves of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import SpecError
from volumetric.layers import (
    GRU,
    LSTM,
    Flatten,
    Gate,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Reshape,
    Sequential,
    StateSpec,
)


def test_attention_and_cells_declare_what_they_keep() -> None:
    attention = MultiHeadAttention(embed_dim=12, num_heads=6, num_kv_heads=2, window=5)
    rows = [StateSpec(name=name, shape=(2, 2), kind="rows", window=5) for name in ("k", "v")]
    assert list(attention.states()) == rows
    assert not MultiHeadAttention(embed_dim=12, num_heads=6, causal=False).states()
    assert LSTM(input_size=3, hidden_size=4).states() == tuple(
        StateSpec(name=name, shape=(4,), kind="fixed") for name in ("h", "c")
    )
    assert not PositionEmbedding(num_embeddings=3, embedding_dim=4).states()


def test_containers_list_their_childrens_states_by_path_and_shape() -> None:
    """A child that reads samples with a sequence each keeps nothing."""
    within = Sequential(layers=(Reshape(shape=(2, 3)), GRU(input_size=3, hidden_size=3), Flatten()))
    spec = Parallel(
        branches=(Sequential(layers=(LSTM(input_size=6, hidden_size=6),)), within),
        combine="filter",
        gate=Gate(in_features=6, out_features=2),
    )
    assert [state.name for state in spec.states((5, 6))] == ["0/0/h", "0/0/c"]
    p, x = arrays(spec, (5, 6), seed=0)
    whole, _ = oracle(spec).forward(p, x)
    memory = Memory()
    first, _ = oracle(spec).forward(p, x[:2], memory=memory)
    memory.position = 2
    second, _ = oracle(spec).forward(p, x[2:], memory=memory)
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_leaves_exactly_what_it_declares(name: str) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=2)
    declared = spec.states(shape)
    assert spec.contextual or not declared
    memory = Memory()
    oracle(spec).forward(p, x, memory=memory if len(shape) <= 2 else None)
    lead = {"rows": shape[:1], "fixed": ()}
    assert {key: value.shape for key, value in memory.values.items()} == {
        state.name: (*lead[state.kind], *state.shape) for state in declared
    }


def test_ill_formed_states_are_refused() -> None:
    with pytest.raises(SpecError, match="unknown kind 'ring'"):
        StateSpec(name="h", shape=(3,), kind="ring")  # pyright: ignore[reportArgumentType]  (the point)
    with pytest.raises(SpecError, match="only states of kind 'rows' have a window"):
        StateSpec(name="h", shape=(3,), kind="fixed", window=2)
