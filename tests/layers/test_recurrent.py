"""Recurrent layers against the published equations written out number by number, and their memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import GRU, LSTM, RNN, Sequential
from volumetric.layers.recurrent import Recurrent

KINDS = [
    RNN(input_size=3, hidden_size=4),
    RNN(input_size=3, hidden_size=4, nonlinearity="relu", bias=False),
    LSTM(input_size=3, hidden_size=4),
    GRU(input_size=3, hidden_size=4),
]


def logistic(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def slow(spec: Recurrent, p: dict[str, np.ndarray], x: np.ndarray) -> list[list[float]]:
    """Hidden states of one sequence [T, input_size], with the equations of torch's documentation."""
    size = spec.hidden_size
    h, c = [0.0] * size, [0.0] * size
    out = []
    for row in x:

        def gate(block: int, unit: int, side: str, values: list[float]) -> float:
            at = block * size + unit
            bias = p[side + ".bias"][at] if spec.bias else 0.0
            return sum(w * v for w, v in zip(p[side + ".weight"][at], values, strict=True)) + bias

        def both(block: int, unit: int) -> float:
            return gate(block, unit, "ih", list(row)) + gate(block, unit, "hh", h)  # noqa: B023  (called in this turn)

        new = []
        for j in range(size):
            if isinstance(spec, RNN):
                new.append(math.tanh(both(0, j)) if spec.nonlinearity == "tanh" else max(0.0, both(0, j)))
            elif isinstance(spec, LSTM):
                i, f, g, o = logistic(both(0, j)), logistic(both(1, j)), math.tanh(both(2, j)), logistic(both(3, j))
                c[j] = f * c[j] + i * g
                new.append(o * math.tanh(c[j]))
            else:
                r, z = logistic(both(0, j)), logistic(both(1, j))
                n = math.tanh(gate(2, j, "ih", list(row)) + r * gate(2, j, "hh", h))
                new.append((1 - z) * n + z * h[j])
        h = new
        out.append(h)
    return out


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.kind)
def test_states_equal_the_equations(spec: Recurrent) -> None:
    p, x = arrays(spec, (2, 6, 3), seed=3)
    y, _ = oracle(spec).forward(p, x)
    np.testing.assert_allclose(y, [slow(spec, p, sample) for sample in x], rtol=0, atol=1e-12)
    np.testing.assert_allclose(oracle(spec).forward(p, x[1])[0], y[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.kind)
def test_a_sequence_in_pieces_gives_the_states_of_the_whole(spec: Recurrent) -> None:
    p, x = arrays(spec, (7, 3), seed=3)
    whole, _ = oracle(spec).forward(p, x)
    memory = Memory()
    for start, end in ((0, 2), (2, 3), (3, 3), (3, 7)):
        memory.position = start
        part, _ = oracle(spec).forward(p, x[start:end], memory=memory)
        np.testing.assert_allclose(part, whole[start:end], rtol=0, atol=1e-12)
    assert {name: value.shape for name, value in memory.values.items()} == {s.name: (4,) for s in spec.states()}


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.kind)
def test_samples_with_a_sequence_each_leave_nothing_behind(spec: Recurrent) -> None:
    p, x = arrays(spec, (2, 5, 3), seed=3)
    memory = Memory(3)
    np.testing.assert_array_equal(oracle(spec).forward(p, x, memory=memory)[0], oracle(spec).forward(p, x)[0])
    assert not memory.values
    assert not spec.states(x.shape)


def test_the_gradient_of_a_later_piece_takes_the_state_before_it_as_given() -> None:
    spec = LSTM(input_size=3, hidden_size=4)
    p, x = arrays(spec, (5, 3), seed=3)
    memory = Memory()
    oracle(spec).forward(p, x[:3], memory=memory)
    before = dict(memory.values)
    y, saved = oracle(spec).forward(p, x[3:], memory=Memory(3, dict(before)))
    grads = oracle(spec).vjp(p, saved, np.ones_like(y))

    def loss(step: float) -> float:
        moved = {**p, "hh.weight": p["hh.weight"].copy()}
        moved["hh.weight"][5, 2] += step
        return float(oracle(spec).forward(moved, x[3:], memory=Memory(3, dict(before)))[0].sum())

    assert grads.params["hh.weight"][5, 2] == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, abs=1e-8)


def test_a_memory_that_does_not_fit_is_refused() -> None:
    spec = GRU(input_size=3, hidden_size=4)
    p, x = arrays(spec, (4, 3), seed=3)
    with pytest.raises(SpecError, match="memory is at row 2 but does not hold h"):
        oracle(spec).forward(p, x, memory=Memory(2))
    with pytest.raises(ShapeError, match=r"holds h of shape \[3\], this call needs \[4\]"):
        oracle(spec).forward(p, x, memory=Memory(2, {"h": np.zeros(3)}))


def test_stacked_layers_keep_a_memory_each() -> None:
    spec = Sequential(layers=(LSTM(input_size=3, hidden_size=4), GRU(input_size=4, hidden_size=2)))
    p, x = arrays(spec, (6, 3), seed=3)
    whole, _ = oracle(spec).forward(p, x)
    memory = Memory()
    first, _ = oracle(spec).forward(p, x[:4], memory=memory)
    memory.position = 4
    second, _ = oracle(spec).forward(p, x[4:], memory=memory)
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.kind)
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (0, 3)])
def test_no_samples_or_no_steps_give_none(spec: Recurrent, shape: tuple[int, ...]) -> None:
    p, x = arrays(spec, shape, seed=3)
    y, saved = oracle(spec).forward(p, x)
    assert y.shape == (*shape[:-1], 4)
    grads = oracle(spec).vjp(p, saved, y)
    assert grads.inputs[0] is not None
    assert grads.inputs[0].shape == shape
    assert {name: g.shape for name, g in grads.params.items()} == {s.name: s.shape for s in spec.params()}
    assert not any(g.any() for g in grads.params.values())


def test_nan_reaches_later_steps_of_its_own_sequence_alone() -> None:
    spec, _ = CASES["lstm-batch"]
    p, x = arrays(spec, (2, 4, 2), seed=3)
    x[1, 2, 0] = np.nan
    y, _ = oracle(spec).forward(p, x)
    assert np.isnan(y).all(axis=-1).tolist() == [[False] * 4, [False, False, True, True]]
    assert not np.isnan(y[0]).any()


def test_ill_formed_layers_and_inputs_are_refused() -> None:
    with pytest.raises(SpecError, match="hidden_size must be a whole number above 0"):
        LSTM(input_size=3, hidden_size=0)
    with pytest.raises(SpecError, match="unknown nonlinearity 'gelu'"):
        RNN(input_size=3, hidden_size=4, nonlinearity="gelu")  # pyright: ignore[reportArgumentType]  (the point)
    with pytest.raises(ShapeError, match="gru expects rows of 3 features"):
        GRU(input_size=3, hidden_size=4).output_shape((5, 4))
