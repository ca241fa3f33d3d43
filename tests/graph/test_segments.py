"""Graphs in segments: computed piece by piece, they give what the whole graph gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.test_networks import NETWORKS, chain
from tests.graph.test_open_rows import LAYERS, STATELESS, Sequence, rows_for
from tests.runtime.test_delays import LOOPS
from volumetric.layers import LSTM, Dense, Entmax, RMSNorm
from volumetric.network import Network
from volumetric.runtime import lower
from volumetric.runtime.graph import Graph, Node
from volumetric.runtime.graph.binding import bind, derived_value
from volumetric.runtime.graph.families import OPS
from volumetric.runtime.graph.interpret import interpret
from volumetric.runtime.graph.network import DIALECT, NATIVE, open_graph
from volumetric.runtime.graph.segments import segments


class Parts(Sequence):
    """A sequence that is computed segment by segment."""

    def _piece(self, x: np.ndarray) -> np.ndarray:
        graph, values = bind(self.graph, len(x)), {}
        for i in graph.inputs:
            what = graph.derived.get(i)
            values[i] = x if what is None else derived_value(what, self.position, graph.tensors[i])
        self.position += len(x)
        for part in segments(self.graph, NATIVE):
            if part.graph is None:
                for node in bind_nodes(graph, part.nodes):
                    self._node(node, graph, values)
                continue
            given = [self._read(i, values) for i in part.inputs]
            found = interpret(bind(part.graph, len(x)), given, self.buffers, np.float64)
            for i, value in zip(part.outputs, found, strict=True):
                tensor = graph.tensors[i]
                if tensor.role == "state":
                    self.buffers[tensor.key or ""] = value
                else:
                    values[i] = value
        return values[graph.outputs[0]]

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


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dialect", [DIALECT, STATELESS], ids=["rows", "small"])
def test_parts_give_what_the_whole_gives(name: str, dialect: frozenset[str]) -> None:
    whole, parts = Sequence(EVERY[name], dialect=dialect), Parts(EVERY[name], dialect=dialect)
    for count in (3, 1):
        x = rows_for(EVERY[name], count)
        np.testing.assert_array_equal(parts.run(x), whole.run(x))


def test_neighbours_that_run_alike_are_one_segment() -> None:
    dense = Dense(in_features=6, out_features=6)
    graph = open_graph(lower(chain(RMSNorm(num_features=6), dense, Entmax(), dense, shape=(6,))))
    parts = segments(graph, NATIVE)
    assert [[node.op for node in part.nodes] for part in parts] == [["linear"], ["entmax"], ["linear"]]
    assert [part.graph is None for part in parts] == [True, False, True]
    assert parts[1].inputs == parts[0].nodes[0].outputs
    assert parts[1].outputs == (parts[2].nodes[0].named("x"),)


def test_states_go_through_a_segment_as_values() -> None:
    graph = open_graph(lower(chain(LSTM(input_size=3, hidden_size=4), shape=(3,))), DIALECT - {"recurrence"})
    part = next(part for part in segments(graph, NATIVE) if part.graph is not None)
    assert part.graph is not None
    assert part.mixes
    assert {graph.tensors[i].key for i in part.inputs if graph.tensors[i].role == "state"} == {"0.0.0.0/h", "0.0.0.0/c"}
    assert {graph.tensors[i].key for i in part.outputs if graph.tensors[i].role == "state"} == {
        "0.0.0.0/h",
        "0.0.0.0/c",
    }
    assert all(tensor.role != "state" for tensor in part.graph.tensors)
