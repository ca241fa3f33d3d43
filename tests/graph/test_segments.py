"""Graphs in segments: computed piece by piece, they give what the whole graph gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.test_networks import NETWORKS, chain
from tests.graph.test_open_rows import LAYERS, STATELESS, Sequence, rows_for
from tests.runtime.test_delays import LOOPS
from volumetric.graph import Graph, Node
from volumetric.graph.binding import bind
from volumetric.graph.numpy_graphs import NumpyProgram, NumpyStore
from volumetric.graph.open_interpreter import positions_from
from volumetric.graph.operations import OPS
from volumetric.graph.predicates import Predicate
from volumetric.layers import (
    LSTM,
    Dense,
    Entmax,
    Gate,
    GumbelSoftmax,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    RMSNorm,
    Sequential,
)
from volumetric.network import Network
from volumetric.network.grid import Link
from volumetric.run import lower
from volumetric.run.graph.network_graph import DIALECT, NATIVE, open_graph
from volumetric.run.graph.partition import split_segments
from volumetric.run.graph.subgraphs import Subgraph, SubgraphRun


class Parts(Sequence):
    """A sequence that is computed segment by segment, on the memory that a device would have."""

    def __init__(self, network: Network, dialect: frozenset[str] = DIALECT) -> None:
        super().__init__(network, dialect=dialect)
        self.values: dict[int, np.ndarray] = {}
        self.parts = [
            part if part.graph is None else Subgraph(self.graph, part, self._compile)
            for part in split_segments(self.graph, NATIVE)
        ]

    def _compile(self, graph: Graph) -> NumpyProgram:
        store = NumpyStore(np.float64)
        store.buffers = self.buffers
        return NumpyProgram(graph, store)

    def rows(self, tensor: int, run: SubgraphRun) -> np.ndarray:
        return self.values[tensor][run.start : run.start + run.rows]

    def state(self, tensor: int, piece: int) -> np.ndarray:
        assert piece == 0
        return self._read(tensor, self.values)

    def _piece(self, x: np.ndarray) -> np.ndarray:
        graph = bind(self.graph, len(x))
        self.values = {i: np.full(t.shape, np.nan) for i, t in enumerate(graph.tensors) if t.key is None}
        for i in graph.inputs:
            self.values[i] = positions_from(self.position, len(x)) if i in graph.derived else x
        for part in self.parts:
            if isinstance(part, Subgraph):
                part.run(self, [len(x)], [self.position])
                continue
            for node in bind_nodes(graph, part.nodes):
                self._node(node, graph, self.values)
        self.position += len(x)
        return self.values[graph.outputs[0]]

    def _read(self, i: int, values: dict[int, np.ndarray]) -> np.ndarray:
        tensor = self.graph.tensors[i]
        return values[i] if tensor.key is None else self.buffers[tensor.key]

    def _node(self, node: Node, graph: Graph, values: dict[int, np.ndarray]) -> None:
        found = OPS[node.op].run([self._read(i, values) for i in node.inputs], node.attrs)
        for i, value in zip(node.outputs, found, strict=True):
            key = graph.tensors[i].key
            if key is None:
                values[i] = value
            else:
                self.buffers[key] = value


def bind_nodes(graph: Graph, nodes: tuple[Node, ...]) -> list[Node]:
    first = {node.outputs[0] for node in nodes}
    return [node for node in graph.nodes if node.outputs[0] in first]


EVERY: dict[str, Network] = {**NETWORKS, **LAYERS, **LOOPS}


@pytest.mark.thorough
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dialect", [DIALECT, STATELESS], ids=["rows", "small"])
def test_parts_give_what_the_whole_gives(name: str, dialect: frozenset[str]) -> None:
    whole, parts = Sequence(EVERY[name], dialect=dialect), Parts(EVERY[name], dialect=dialect)
    for count in (3, 1):
        x = rows_for(EVERY[name], count)
        np.testing.assert_allclose(parts.run(x), whole.run(x), rtol=1e-9, atol=1e-12)


def test_neighbours_that_run_alike_are_one_segment() -> None:
    dense = Dense(in_features=6, out_features=6)
    graph = open_graph(lower(chain(RMSNorm(num_features=6), dense, Entmax(), dense, shape=(6,))))
    parts = split_segments(graph, NATIVE)
    assert [[node.op for node in part.nodes] for part in parts] == [["linear"], ["entmax"], ["linear"]]
    assert [part.graph is None for part in parts] == [True, False, True]
    assert parts[1].inputs == parts[0].nodes[0].outputs
    assert parts[1].outputs == (parts[2].nodes[0].input_by_role("x"),)


def test_states_go_through_a_segment_as_values() -> None:
    graph = open_graph(lower(chain(LSTM(input_size=3, hidden_size=4), shape=(3,))), DIALECT - {"recurrence"})
    part = next(part for part in split_segments(graph, NATIVE) if part.graph is not None)
    assert part.graph is not None
    assert part.mixes
    assert {graph.tensors[i].key for i in part.inputs if graph.tensors[i].role == "state"} == {"0.0.0.0/h", "0.0.0.0/c"}
    assert {graph.tensors[i].key for i in part.outputs if graph.tensors[i].role == "state"} == {
        "0.0.0.0/h",
        "0.0.0.0/c",
    }
    assert all(tensor.role != "state" for tensor in part.graph.tensors)


def core_of(*layers: LayerSpec, links: tuple[Link, ...] = (), dialect: frozenset[str] = DIALECT) -> Subgraph:
    graph = open_graph(lower(chain(*layers, shape=(4,), links=links)), dialect)
    [part] = [part for part in split_segments(graph, NATIVE) if part.graph is not None]
    return Subgraph(graph, part, lambda bound: bound)


def test_rows_that_are_strangers_run_together_in_powers_of_two() -> None:
    core = core_of(Dense(in_features=4, out_features=4), Entmax())
    cut = list(core.runs([3, 1, 7], [0, 5, 2]))
    assert cut == [SubgraphRun(0, 8), SubgraphRun(8, 2), SubgraphRun(10, 1)]
    assert core.program(8) is core.program(8)


def test_rows_of_a_sequence_run_by_themselves() -> None:
    core = core_of(LSTM(input_size=4, hidden_size=4), dialect=frozenset())
    assert list(core.runs([3, 1], [4, 0])) == [
        SubgraphRun(0, 2, 0, 4),
        SubgraphRun(2, 1, 0, 6),
        SubgraphRun(3, 1, 1, 0),
    ]


def test_rows_that_look_ahead_stay_together() -> None:
    bare = MultiHeadAttention(embed_dim=4, num_heads=1, causal=False)
    core = core_of(bare, Entmax(), GumbelSoftmax())
    assert [stretch.rows for stretch in core.runs([5, 3], [0, 0])] == [5, 3]


def test_branches_that_nobody_chose_are_segments_of_their_own() -> None:
    branch = Sequential(layers=(Dense(in_features=4, out_features=4), Entmax()))
    gate = Gate(in_features=4, out_features=2, top_k=1)
    graph = open_graph(lower(chain(Parallel(branches=(branch, branch), combine="filter", gate=gate), shape=(4,))))
    parts = [part for part in split_segments(graph, NATIVE) if part.graph is not None]
    assert [part.predicate for part in parts] == [Predicate(graph.nodes[-1].inputs[0], column) for column in (0, 1)]
