"""Graphs whose rows are open: any layer in any cut of a sequence computes what its oracle does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import CASES
from tests.graph.test_networks import NETWORKS, chain
from tests.oracles.network import NumpyNetwork
from tests.runtime.test_delays import LOOPS
from volumetric.base.errors import ShapeError
from volumetric.graph.binding import bind, is_open
from volumetric.graph.interpret import interpret
from volumetric.graph.open_interpreter import positions_from
from volumetric.graph.ops import HELD, Graph
from volumetric.graph.predicates import Predicate
from volumetric.layers import GRU, LSTM, RNN, Dense, Dropout, Entmax, Gate, Parallel, Residual, RMSNorm, Sequential
from volumetric.network import Network, initialise
from volumetric.run import lower
from volumetric.run.graph.network_graph import DIALECT, open_graph

SMALL = {"recurrence", "mix", "linear", "causal_conv", "selective_scan", "grouped_norm"}
STATELESS = DIALECT - SMALL
"""Of a device that multiplies and adds in small operations."""
LAYERS = {
    name: chain(spec, shape=shape[1:])
    for name, (spec, shape) in CASES.items()
    if spec.arity == 1 and spec.kind not in {"embedding", "last_step"} and len(shape) > 1
}


class Sequence:
    """A sequence that the interpreter runs, in float64."""

    def __init__(self, network: Network, seed: int = 3, dialect: frozenset[str] = DIALECT) -> None:
        self.graph = open_graph(lower(network), dialect)
        self.buffers = {key: store.values().astype(np.float64) for key, store in initialise(network, seed).items()}
        for key, tensor in self.graph.tensors_by_key.items():
            if tensor.role == "state":
                self.buffers[key] = np.zeros([0 if n == HELD else n for n in tensor.shape])
        self.position = 0

    def run(self, x: np.ndarray) -> np.ndarray:
        """Append rows; where a link closes a loop, as many at a time as may run."""
        size = self.graph.max_rows or len(x)
        return np.concatenate([self._piece(x[at : at + size]) for at in range(0, len(x), size)])

    def _piece(self, x: np.ndarray) -> np.ndarray:
        given = [positions_from(self.position, len(x)) if i in self.graph.derived else x for i in self.graph.inputs]
        self.position += len(x)
        return interpret(self.graph, given, self.buffers, np.float64)[0]


def rows_for(network: Network, count: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    if network.input_dtype == "int32":
        return rng.integers(0, 6, count).astype(np.int32)
    return rng.standard_normal((count, *network.input_shape))


def agree(network: Network, cuts: tuple[int, ...], dialect: frozenset[str] = DIALECT) -> Sequence:
    reference = NumpyNetwork.of(network, initialise(network, 3))
    state, sequence = reference.new_state(), Sequence(network, dialect=dialect)
    for count in cuts:
        x = rows_for(network, count)
        want = reference.forward(state, x, last_only=False)
        np.testing.assert_allclose(sequence.run(x), want, rtol=1e-9, atol=1e-12)
    return sequence


@pytest.mark.parametrize("name", [*NETWORKS])
@pytest.mark.parametrize("cuts", [(5,), (1, 3, 1)])
def test_networks_go_on_from_their_states(name: str, cuts: tuple[int, ...]) -> None:
    sequence = agree(NETWORKS[name], cuts)
    held = [t for t in sequence.graph.tensors_by_key.values() if t.role == "state" and t.shape[0] == HELD]
    assert all(len(sequence.buffers[t.key or ""]) == 5 for t in held)


@pytest.mark.thorough
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_runs_on_any_number_of_rows(name: str) -> None:
    agree(LAYERS[name], (3, 1))
    agree(LAYERS[name], (2, 2), STATELESS)


@pytest.mark.parametrize("name", LOOPS)
def test_links_with_a_delay_read_what_is_kept(name: str) -> None:
    agree(LOOPS[name], (1, 4, 2))


@pytest.mark.parametrize("cell", [RNN, LSTM, GRU])
def test_recurrent_layers_keep_a_state_of_fixed_size(cell: type[LSTM]) -> None:
    layers = (cell(input_size=3, hidden_size=4), Sequential(layers=(cell(input_size=4, hidden_size=2),)))
    sequence = agree(chain(*layers, shape=(3,)), (4, 2, 1))
    states = {key: tensor.shape for key, tensor in sequence.graph.tensors_by_key.items() if tensor.role == "state"}
    assert states["0.0.0.0/h"] == (1, 4)
    assert states["0.0.0.1/0/h"] == (1, 2)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_what_is_no_operation_on_rows_stands_beside_those_that_are() -> None:
    dense = Dense(in_features=6, out_features=6)
    graph = open_graph(lower(chain(RMSNorm(num_features=6), dense, Entmax(), Residual(), shape=(6,))))
    assert ops(graph) == ["linear", "entmax", "binary"]
    assert is_open(graph)
    assert not is_open(bind(graph, 3))


def test_branches_of_a_mixture_run_where_they_are_chosen() -> None:
    dense = Dense(in_features=6, out_features=6)
    inner = Sequential(layers=(RMSNorm(num_features=6), dense, Residual(source="input")))
    gate = Gate(in_features=6, out_features=2, top_k=1)
    graph = open_graph(lower(chain(Parallel(branches=(dense, inner), combine="filter", gate=gate), shape=(6,))))
    assert ops(graph) == ["linear", "keep_largest", "softmax", "linear", "linear", "mix"]
    weights = graph.nodes[-1].inputs[0]
    assert [node.predicate for node in graph.nodes[3:5]] == [Predicate(weights, 0), Predicate(weights, 1)]
    assert graph.nodes[4].attrs["residual"]


def test_a_branch_that_keeps_a_state_always_runs() -> None:
    lstm = LSTM(input_size=6, hidden_size=6)
    expert = Parallel(branches=(lstm, lstm), combine="filter", gate=Gate(in_features=6, out_features=2, top_k=1))
    sequence = agree(chain(expert, shape=(6,)), (3, 1))
    assert not any(node.predicate for node in sequence.graph.nodes)


def test_a_network_without_an_operation_hands_its_input_on() -> None:
    graph = open_graph(lower(chain(Dropout(p=0.5), shape=(6,))))
    assert ops(graph) == ["unary"]


def test_inputs_agree_on_their_rows() -> None:
    graph = open_graph(lower(chain(Dense(in_features=6, out_features=2), shape=(6,))))
    with pytest.raises(ShapeError, match="axes"):
        interpret(graph, [np.zeros(6)], {})
