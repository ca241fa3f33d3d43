"""Interprets a graph with open rows for sequences that continue from call to call."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import GenerationError
from volumetric.graph.binding import bind, tables_of_positions
from volumetric.graph.fusion import mark_tail
from volumetric.graph.interpret import Float, Interpreter
from volumetric.graph.ops import HELD, Graph, Tensor
from volumetric.graph.pruning import prune

_BOUND = 64
"""Row counts and selections of outputs for which a prepared graph is cached."""


@dataclass(frozen=True, slots=True)
class _BoundGraph:
    """A graph for a number of rows, split at the node after which the last row can run alone.

    Attributes
    ----------
    rows : the graph for all rows
    head : number of nodes that run on all rows if only the last row is requested
    one : the graph for one row, which runs the nodes after `head` then
    crossing : tensors that those nodes read, each with the number of its rows that belong to one row of the call
    """

    rows: Interpreter
    head: int
    one: Interpreter
    crossing: tuple[tuple[int, int], ...]


class OpenRowsInterpreter:
    """Runs a graph of open rows on sequences.

    Attributes
    ----------
    states : key of each state of a sequence → its tensor; `HELD` in its shape stands for the rows that it holds
    """

    def __init__(self, graph: Graph, dtype: Float) -> None:
        self._graph, self._dtype = graph, dtype
        self.states: dict[str, Tensor] = {
            key: tensor for key, tensor in graph.tensors_by_key.items() if tensor.role == "state"
        }
        self._tables = tables_of_positions(graph)
        self._bound = lru_cache(_BOUND)(self._bind)

    def run(
        self,
        inputs: Sequence[Array],
        buffers: MutableMapping[str, Array],
        position: int,
        outputs: Sequence[int] | None = None,
        *,
        last: bool = False,
    ) -> list[Array]:
        """Append rows to a sequence.

        Parameters
        ----------
        inputs : ``[T, …]`` for each input that a caller passes
        buffers : parameters and states; states that the rows change are replaced
        position : number of earlier rows of the sequence
        outputs : indices of the requested outputs; None: all
        last : return outputs of the last row only, and run the nodes after the last one that mixes rows on it alone

        Returns
        -------
        ``[T, …]``, or ``[1, …]`` of the last row, for each output
        """
        selected = tuple(range(len(self._graph.outputs))) if outputs is None else tuple(outputs)
        rows = len(inputs[0])
        size = self._graph.max_rows or rows
        chunks: list[list[Array]] = []
        for start in range(0, rows, size):
            part = [x[start : start + size] for x in inputs]
            chunks.append(self._run_rows(part, buffers, position + start, selected, last=last))
        if last or len(chunks) == 1:
            return chunks[-1]
        return [np.concatenate(parts) for parts in zip(*chunks, strict=True)]

    def _run_rows(
        self,
        arrays: Sequence[Array],
        buffers: MutableMapping[str, Array],
        position: int,
        selected: tuple[int, ...],
        *,
        last: bool,
    ) -> list[Array]:
        """Return the `selected` outputs of the rows of one call, or of its last row alone; advance the states."""
        rows = len(arrays[0])
        for where, positions in self._tables:
            if position + rows > positions:
                last_one = position + rows - 1
                raise GenerationError(f"position {last_one} is beyond the {positions} learned positions at {where}")
        bound = self._bound(rows, selected)
        graph, left = bound.rows.graph, iter(arrays)
        inputs = [positions_from(position, rows) if i in graph.derived else next(left) for i in graph.inputs]
        values = bound.rows.begin(inputs, buffers)
        if not last:
            bound.rows.evaluate(values, buffers)
            return [values[i] for i in graph.outputs]
        bound.rows.evaluate(values, buffers, 0, bound.head)
        for i, count in bound.crossing:
            values[i] = values[i][-count:]
        bound.one.evaluate(values, buffers, bound.head)
        return [values[i][-1:] for i in graph.outputs]

    def _bind(self, rows: int, selected: tuple[int, ...]) -> _BoundGraph:
        graph = replace(self._graph, outputs=tuple(self._graph.outputs[i] for i in selected))
        graph = mark_tail(prune(graph))
        whole, one = bind(graph, rows), bind(graph, 1)
        head = sum(not node.tail for node in whole.nodes)
        available = {i for node in whole.nodes[:head] for i in node.outputs} | {*graph.inputs}
        read = {i for node in whole.nodes[head:] for i in node.inputs} | {*graph.outputs}
        shapes = {i: graph.tensors[i].shape for i in sorted(available & read)}
        crossing = {i: -shape[0] for i, shape in shapes.items() if any(n < 0 and n != HELD for n in shape)}
        if any(count <= 0 for count in crossing.values()):  # rows are on another axis: all of them continue
            head, crossing = len(whole.nodes), {}
        interpreters = (Interpreter(of, self._dtype) for of in (whole, one))
        return _BoundGraph(next(interpreters), head, next(interpreters), tuple(crossing.items()))


def positions_from(start: int, rows: int) -> Array:
    """Return the derived input that has the positions of `rows` rows of a sequence, from `start` on."""
    return np.arange(start, start + rows, dtype=np.int32)
