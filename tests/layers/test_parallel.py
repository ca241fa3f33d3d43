"""Joins of parallel branches: experts chosen for every token, cells of a grid, and what is refused."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.graphed import graphed
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.base import below
from tests.oracles.joins import mix
from tests.oracles.memory import Memory
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.layers import LSTM, Conv1d, Dense, Gate, Parallel, Residual, Sequential, Softcap


def dense(out: int = 3) -> Dense:
    return Dense(in_features=4, out_features=out, activation="tanh")


def gate(branches: int, top_k: int | None = None) -> Gate:
    return Gate(in_features=4, out_features=branches, top_k=top_k, bias=True)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_and_means_of_any_number_of_branches(count: int) -> None:
    for combine in ("add", "avg"):
        share = 1 / count if combine == "avg" else 1.0
        spec = Parallel(branches=(dense(),) * count, combine=combine)
        p, x = arrays(spec, (5, 4), seed=1)
        outputs = [graphed(dense()).forward(below(p, str(i)), x)[0] for i in range(count)]
        np.testing.assert_allclose(graphed(spec).forward(p, x)[0], share * np.sum(outputs, axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("top_k", [None, 1, 2, 4])
def test_every_token_mixes_the_experts_that_its_gate_takes(top_k: int | None) -> None:
    spec = Parallel(branches=(dense(), dense(), dense(), dense()), combine="filter", gate=gate(4, top_k))
    p, x = arrays(spec, (2, 5, 4), seed=1)
    y, _ = graphed(spec).forward(p, x)
    chosen = set()
    for at in np.ndindex(2, 5):
        scores = [float(w @ x[at] + b) for w, b in zip(p["gate/weight"], p["gate/bias"], strict=True)]
        taken = sorted(range(4), key=lambda i: -scores[i])[: top_k or 4]
        total = sum(math.exp(scores[i]) for i in taken)
        expected = sum(
            math.exp(scores[i]) / total * graphed(dense()).forward(below(p, str(i)), x[at][None])[0][0] for i in taken
        )
        np.testing.assert_allclose(y[at], expected, rtol=0, atol=1e-12)
        chosen.add(tuple(sorted(taken)))
    assert len(chosen) > 1 or top_k in (None, 4)  # the gate really decides for every token


def test_renormalised_top_k_of_softmax_is_softmax_of_the_top_k() -> None:
    spec = gate(5, 2)
    p, x = arrays(spec, (7, 4), seed=2)
    every, _ = graphed(gate(5)).forward(p, x)
    kept = np.where(every >= np.sort(every, axis=-1)[:, -2:-1], every, 0)
    np.testing.assert_allclose(graphed(spec).forward(p, x)[0], kept / kept.sum(-1, keepdims=True), rtol=0, atol=1e-14)


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_scores_of_the_largest_may_stay_as_they_are(top_k: int | None) -> None:
    for scoring in ("softmax_all", "sigmoid"):
        spec = Gate(in_features=4, out_features=5, top_k=top_k, bias=True, scoring=scoring)
        p, x = arrays(spec, (7, 4), seed=2)
        logits = x @ p["weight"].T + p["bias"]
        scores = 1 / (1 + np.exp(-logits)) if scoring == "sigmoid" else graphed(gate(5)).forward(p, x)[0]
        limit = np.sort(logits, axis=-1)[:, -(top_k or 5), None]
        np.testing.assert_allclose(
            graphed(spec).forward(p, x)[0], np.where(logits >= limit, scores, 0), rtol=0, atol=1e-14
        )


def test_branches_that_are_not_taken_lower_the_weights_of_a_softmax_over_all() -> None:
    spec = Gate(in_features=4, out_features=3, top_k=1, bias=True, scoring="softmax_all")
    p, x = arrays(spec, (1, 4), seed=1)
    p["weight"][:] = 0
    p["bias"][:] = (2.0, 1.0, 0.0)
    y, saved = graphed(spec).forward(p, x)
    np.testing.assert_allclose(y, [[math.e**2 / (math.e**2 + math.e + 1), 0, 0]], rtol=1e-12)
    grad = graphed(spec).vjp(p, saved, np.ones_like(y)).params["bias"]
    assert grad[0] > 0 > max(grad[1:])


def test_equal_logits_take_the_earlier_branch_and_nan_is_not_hidden() -> None:
    logits = np.array([[1.0, 3.0, 3.0, 3.0], [1.0, np.nan, 2.0, 0.0]])
    kept = keep_largest(logits, 2)
    np.testing.assert_array_equal(kept[0], [-np.inf, 3.0, 3.0, -np.inf])
    assert np.isnan(kept[1, 1])
    many = keep_largest((np.arange(300) % 3 == 1).astype(float), 7)  # an unstable sort would take others
    assert np.flatnonzero(many == 1).tolist() == [1, 4, 7, 10, 13, 16, 19]


def test_an_expert_without_weight_has_no_part_even_with_nan() -> None:
    values = [np.array([[1.0, 2.0]]), np.array([[np.nan, np.inf]])]
    np.testing.assert_array_equal(mix(values, np.array([[1.0, 0.0]])), [[1.0, 2.0]])
    assert np.isnan(mix(values, np.array([[0.5, 0.5]]))).any()


def test_the_gate_and_the_chosen_experts_alone_learn() -> None:
    spec = Parallel(branches=(dense(), dense()), combine="filter", gate=gate(2, 1))
    p, x = arrays(spec, (6, 4), seed=1)
    p["gate/weight"][:] = 0
    p["gate/bias"][:] = (5.0, 0.0)
    y, saved = graphed(spec).forward(p, x)
    grads = graphed(spec).vjp(p, saved, np.ones_like(y))
    assert grads.params["0/weight"].any()
    assert not grads.params["1/weight"].any()
    both = Parallel(branches=(dense(), dense()), combine="filter", gate=gate(2))
    y, saved = graphed(both).forward(p, x)
    grads = graphed(both).vjp(p, saved, np.ones_like(y))
    assert grads.params["1/weight"].any()
    assert grads.params["gate/weight"].any()


def test_experts_remember() -> None:
    spec = Parallel(
        branches=(LSTM(input_size=4, hidden_size=3), dense(), LSTM(input_size=4, hidden_size=3)),
        combine="filter",
        gate=gate(3, 2),
    )
    assert [state.name for state in spec.states((6, 4))] == ["0/h", "0/c", "2/h", "2/c"]
    assert not spec.states((2, 6, 4))
    p, x = arrays(spec, (6, 4), seed=1)
    whole, _ = graphed(spec).forward(p, x)
    memory = Memory()
    parts = []
    for t in range(6):
        memory.position = t
        parts.append(oracle(spec).forward(p, x[t : t + 1], memory=memory)[0])
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-12)


def test_branches_land_in_their_cells() -> None:
    positions = ((1, 0, 1), (0, 1, 0))
    spec = Parallel(branches=(dense(2), dense(2)), combine="grid_scatter", grid=(2, 2, 2), positions=positions)
    p, x = arrays(spec, (3, 4), seed=1)
    y = graphed(spec).forward(p, x)[0].reshape(3, 2, 2, 2, 2)
    for i, cell in enumerate(positions):
        np.testing.assert_array_equal(y[(slice(None), *cell)], graphed(dense(2)).forward(below(p, str(i)), x)[0])
        y[(slice(None), *cell)] = 0
    assert not y.any()


def test_a_full_grid_in_order_is_concatenation() -> None:
    branches = (dense(2), dense(2), dense(2))
    scattered = Parallel(branches=branches, combine="grid_scatter", grid=(1, 3, 1))
    p, x = arrays(scattered, (2, 5, 4), seed=1)
    np.testing.assert_array_equal(
        graphed(scattered).forward(p, x)[0], graphed(Parallel(branches=branches)).forward(p, x)[0]
    )


@pytest.mark.parametrize("name", ["filter", "filter-top-2", "filter-nested", "grid-scatter"])
def test_zero_rows_give_zero_rows(name: str) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=1)
    y, saved = graphed(spec).forward(p, x[:0])
    assert y.shape == (0, *spec.output_shape(shape)[1:])
    assert not any(g.any() for g in graphed(spec).vjp(p, saved, y).params.values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"combine": "gated"}, "unknown combine 'gated'"),
        ({"combine": "filter"}, "combine 'filter' and a gate need each other"),
        ({"gate": gate(2)}, "combine 'filter' and a gate need each other, combine is 'concat'"),
        ({"combine": "filter", "gate": gate(3)}, "the gate has 3 outputs for 2 branches"),
        ({"combine": "grid_scatter"}, "combine 'grid_scatter' and a grid need each other"),
        ({"grid": (1, 1, 2)}, "and a grid need each other, combine is 'concat'"),
        ({"positions": ((0, 0, 0),)}, "positions need a grid"),
        ({"combine": "grid_scatter", "grid": (1, 0, 2)}, "grid must be three whole numbers above 0"),
        ({"combine": "grid_scatter", "grid": (1, 2)}, "grid must be three whole numbers above 0"),
        ({"combine": "grid_scatter", "grid": (1, 1, 1)}, "2 branches need one cell each"),
        ({"combine": "grid_scatter", "grid": (1, 1, 2), "positions": ((0, 0, 0),)}, "need one cell each"),
        ({"combine": "grid_scatter", "grid": (1, 1, 2), "positions": ((0, 0, 0),) * 2}, "need one cell each"),
        ({"combine": "grid_scatter", "grid": (1, 1, 2), "positions": ((0, 0), (0, 1))}, "outside of the grid"),
        (
            {"combine": "grid_scatter", "grid": (1, 1, 2), "positions": ((0, 0, 0), (0, 0, 2))},
            r"position \(0, 0, 2\) is outside of the grid \(1, 1, 2\)",
        ),
    ],
)
def test_ill_formed_joins_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Parallel(branches=(dense(), dense()), **fields)


def test_top_k_lies_within_the_branches() -> None:
    with pytest.raises(SpecError, match="top_k must be a whole number above 0"):
        gate(3, 0)
    with pytest.raises(SpecError, match="top_k must be at most the 3 branches, got 4"):
        gate(3, 4)


def test_a_scoring_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError, match="gate: unknown scoring 'relu'") as caught:
        Gate(in_features=4, out_features=3, scoring=cast("Any", "relu"))
    assert "softmax_all" in str(caught.value.hint)


def test_shapes_that_cannot_be_joined_are_refused() -> None:
    unequal = (dense(2), dense(3))
    with pytest.raises(ShapeError, match=r"parallel cannot filter \[T, 2\] and \[T, 3\]"):
        Parallel(branches=unequal, combine="filter", gate=gate(2)).output_shape((-1, 4))
    with pytest.raises(ShapeError, match="parallel cannot grid_scatter"):
        Parallel(branches=unequal, combine="grid_scatter", grid=(1, 1, 2)).output_shape((-1, 4))
    with pytest.raises(ShapeError, match="gate expects rows of 4 features"):
        Parallel(branches=(Softcap(cap=1.0),), combine="filter", gate=gate(1)).output_shape((-1, 5))
    images = Conv1d(in_channels=2, out_channels=3, kernel_size=1)
    with pytest.raises(ShapeError, match=r"a gate on \[T, 2, 4\] cannot weigh \[T, 3, 4\]"):
        Parallel(branches=(images,), combine="filter", gate=gate(1)).output_shape((-1, 2, 4))


def test_a_residual_is_no_branch() -> None:
    with pytest.raises(SpecError, match="a residual cannot be a branch"):
        Parallel(branches=(dense(4), Residual()))
    Parallel(branches=(dense(4), Sequential(layers=(dense(4), Residual()))))
