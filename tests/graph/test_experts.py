"""Mixtures as one operation: what the pass finds in a graph, and that it means the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from volumetric import Coord, Grid, Network, initialise
from volumetric.graph import Graph, interpret
from volumetric.layers import MLP, Dense, Gate, LayerSpec, Parallel, Residual, RMSNorm, SwiGLU
from volumetric.layers.gate import SCORINGS, Scoring
from volumetric.loaders import open_model
from volumetric.run.graph.low_rank import with_adapters
from volumetric.run.graph.network_graph import DIALECT, GROUPED, open_graph
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
WIDTH = 6
GATED = SwiGLU(in_features=WIDTH, hidden_features=5)
BIASED = MLP(in_features=WIDTH, hidden_features=5, activation="relu")


def mixture(*experts: LayerSpec, scoring: Scoring = "softmax", top_k: int | None = 2) -> Network:
    """A norm, a mixture behind it, and a sum around both."""
    gate = Gate(in_features=WIDTH, out_features=len(experts), top_k=top_k, scoring=scoring)
    layers = (
        Dense(in_features=WIDTH, out_features=WIDTH),
        RMSNorm(num_features=WIDTH),
        Parallel(branches=experts, combine="filter", gate=gate),
        Residual(source="0.0.0.0"),
    )
    return Network(
        grid=Grid(len(layers)),
        input_shape=(WIDTH,),
        input_dtype="float32",
        layers={Coord(z): spec for z, spec in enumerate(layers)},
    )


def graphs(network: Network) -> tuple[Graph, Graph]:
    """The graph as the rules write it, and as the pass leaves it."""
    plan = lower(network)
    return open_graph(plan), open_graph(plan, DIALECT | GROUPED)


def test_experts_that_read_weighed_rows_stay_apart_and_guarded() -> None:
    gate = Gate(in_features=WIDTH, out_features=3, top_k=1, scoring="sigmoid")
    spec = Parallel(branches=(GATED, GATED, GATED), combine="filter", gate=gate, weigh="input")
    network = Network(grid=Grid(1), input_shape=(WIDTH,), input_dtype="float32", layers={Coord(0): spec})
    _, fused = graphs(network)
    products = [node for node in fused.nodes if node.op == "linear" and node.predicate is not None]
    assert len(products) == 6
    assert {node.predicate[1] for node in products if node.predicate} == {0, 1, 2}
    assert fused.nodes[-1].op == "mix"
    assert not fused.nodes[-1].attrs["weighted"]


CASES = [(scoring, top_k, expert) for scoring in SCORINGS for top_k, expert in ((2, GATED), (None, BIASED))]


@pytest.mark.parametrize(("scoring", "top_k", "expert"), CASES)
def test_a_mixture_becomes_one_operation(scoring: Scoring, top_k: int | None, expert: LayerSpec) -> None:
    network = mixture(*[expert] * 4, scoring=scoring, top_k=top_k)
    apart, fused = graphs(network)
    assert [node.op for node in fused.nodes] == ["linear", "linear", "experts"]
    attrs = fused.nodes[-1].attrs
    assert attrs["residual"]
    assert attrs["top_k"] == (top_k or 4)
    assert not any(node.predicate for node in fused.nodes)
    rng = np.random.default_rng(4)
    params = initialise(network, 2)
    buffers = {key: np.array(params[key].values()) for key in params}
    x = rng.standard_normal((9, WIDTH)).astype(np.float32)
    x[3], x[4, 2] = 0, np.nan
    wanted, found = (interpret(graph, [x], dict(buffers))[0] for graph in (apart, fused))
    assert np.isnan(wanted[4]).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_gate_with_weights_of_its_own_is_left_as_it_is() -> None:
    network = mixture(*[GATED] * 3, scoring="sigmoid", top_k=None)
    node = graphs(network)[1].nodes[-1]
    assert (node.op, node.attrs["scoring"], node.attrs["top_k"]) == ("experts", "given", 3)


@pytest.mark.parametrize(
    "experts",
    [
        (GATED, GATED, BIASED),
        (GATED, replace(GATED, hidden_features=7)),
        (GATED, replace(GATED, activation="gelu")),
        (Dense(in_features=WIDTH, out_features=WIDTH),) * 3,
        (GATED,),
    ],
    ids=["kinds", "widths", "activations", "single products", "one"],
)
def test_experts_that_are_not_alike_stay_apart(experts: tuple[LayerSpec, ...]) -> None:
    network = mixture(*experts, top_k=1)
    apart, fused = graphs(network)
    assert str(apart) == str(fused)
    assert "mix" in {node.op for node in fused.nodes}


def test_experts_with_low_rank_overlays_stay_apart() -> None:
    plan = lower(mixture(*[GATED] * 3))
    adapted = with_adapters(plan, {"2.0.0.0/1/down.weight": [2]})
    assert "mix" in {node.op for node in open_graph(adapted, DIALECT | GROUPED).nodes}


@pytest.mark.parametrize(
    ("family", "scoring"),
    [("mixtral", "softmax"), ("qwen2_moe", "softmax_all"), ("qwen3_moe", "softmax"), ("granitemoe", "softmax")],
)
def test_mixtures_of_model_families_become_it(family: str, scoring: str) -> None:
    """All but the one expert that each row takes, which Qwen2 has beside its mixture."""
    plan = lower(open_model(TINY / family).network)
    apart, fused = open_graph(plan), open_graph(plan, DIALECT | GROUPED)
    found = [node.attrs["scoring"] for node in fused.nodes if node.op == "experts"]
    assert found == [scoring] * sum(node.op == "mix" and len(node.inputs) > 2 for node in apart.nodes)
    assert found
