"""Segments that do not run on rows, on a GPU: launches in the same pass as row operations.

A program for a fixed number of rows has separate dense tensors. Launches copy rows of a call's values into them and
back, copy fixed states out of the lines of their sequences and back, and write positions of rows; they read the places
from the control block. So a recording depends on how many rows a call has of each sequence, not on the sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from volumetric.devices.gpu.buffer_names import BufferNames
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.fixed_states import fixed_name
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.graph.encode_graph import record_graph, rewrite_for_gpu
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.subgraph_moves import move_places, move_rows, move_state
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.devices.gpu.products import multiplies_halves
from volumetric.devices.gpu.value_buffers import CHUNK_ROWS, row_words
from volumetric.devices.gpu.weight_buffers import WeightBuffers
from volumetric.graph.binding import bind
from volumetric.graph.ops import Graph, Node, ProductType, Tensor
from volumetric.graph.rounded_products import with_products
from volumetric.network import Params
from volumetric.run.device import RunOptions
from volumetric.run.graph.partition import Segment
from volumetric.run.graph.subgraphs import Subgraph, SubgraphRun

_TENSOR_BYTES = 256 << 20
"""Bytes of one tensor of a program, beyond which fewer rows run at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphProgram:
    """A segment for a fixed number of rows, as plain data, and its private buffers.

    Attributes
    ----------
    inputs, outputs : buffers of the segment's inputs and outputs, in their order
    buffers : name → buffer
    retired : receives it when it is closed, as recordings may name its buffers until the next call
    """

    entries: Sequence[RecordedDispatch]
    inputs: Sequence[str]
    outputs: Sequence[str]
    buffers: OwnedBuffers
    retired: list[SubgraphProgram]

    def close(self) -> None:
        """Release the buffers."""
        self.retired.append(self)


class GpuSubgraphs:
    """The segments of one graph that do not run on rows.

    Parameters
    ----------
    context : the open GPU
    graph : the whole graph
    parts : its segments
    weights : receives the parameters that these segments read, as float32
    before_close : called before buffers of programs are freed: recordings that name them must be dropped
    params, options : of the network: they decide how products are computed, see `Graph.products`
    """

    def __init__(
        self,
        context: GpuContext,
        graph: Graph,
        parts: Sequence[Segment],
        weights: WeightBuffers,
        before_close: Callable[[], None],
        params: Params,
        options: RunOptions,
    ) -> None:
        self._context = context
        self._products = products_of_subgraphs(params, options, context.caps)
        self._graph = graph
        self._weights = weights
        self._before_close = before_close
        self._program_count = 0
        self._retired: list[SubgraphProgram] = []
        self._most: dict[tuple[int, int], int] = {}
        self._subgraphs = {
            id(part): Subgraph(graph, part, self._binder(number))
            for number, part in enumerate(parts)
            if part.graph is not None
        }
        for part in parts:
            for key in sorted(part.graph.tensors_by_key if part.graph is not None else ()):
                weights.dense_buffer(key)

    def __bool__(self) -> bool:
        return bool(self._subgraphs)

    @property
    def nbytes(self) -> int:
        """Bytes of all programs."""
        return sum(program.buffers.nbytes for program in self._programs())

    @property
    def buffers(self) -> dict[str, Any]:
        """Buffers of all programs by their names in recordings."""
        return {name: buffer for program in self._programs() for name, buffer in program.buffers.items()}

    def prepare(self, lengths: Sequence[int]) -> None:
        """Prepare the programs for a call with these numbers of rows; retired programs are freed now."""
        if self._retired:
            self._before_close()
            self._free_retired()
        for subgraph in self._subgraphs.values():
            for run in () if subgraph.segment.tail else self._row_ranges(subgraph, lengths):
                subgraph.program(run.rows, run.sequences)

    def entries(
        self, part: Segment, lengths: Sequence[int], values: Mapping[int, str], control: str
    ) -> list[RecordedDispatch]:
        """Record a segment for a call with these numbers of rows."""
        subgraph, entries = self._subgraphs[id(part)], []
        for run in self._row_ranges(subgraph, lengths):
            program: SubgraphProgram = subgraph.program(run.rows, run.sequences)
            renamed: dict[str, str] = {}
            for i, name in zip(part.inputs, program.inputs, strict=True):
                if self._is_state(i):
                    entries.append(
                        self._state(i, run, {"x": self._state_buffer(i), "y": name, "ctl": control}, back=False)
                    )
                elif i in self._graph.derived:
                    entries.append(self._positions_entry(run, {"y": name, "ctl": control}))
                elif self._lies_dense(i, run):
                    renamed[name] = values[i]  # location of the value
                else:
                    entries.append(self._rows(i, run, {"x": values[i], "y": name}, back=False))
            for entry in program.entries:
                buffers = {local: renamed.get(name, name) for local, name in entry.buffers.items()}
                entries.append(replace(entry, buffers=buffers))
            for i, name in zip(part.outputs, program.outputs, strict=True):
                source = renamed.get(name, name)
                if self._is_state(i):
                    entries.append(
                        self._state(i, run, {"x": source, "y": self._state_buffer(i), "ctl": control}, back=True)
                    )
                else:
                    entries.append(self._rows(i, run, {"x": source, "y": values[i]}, back=True))
        return entries

    def close(self) -> None:
        """Free all programs."""
        for subgraph in self._subgraphs.values():
            subgraph.close()
        self._free_retired()

    def _free_retired(self) -> None:
        while self._retired:
            self._retired.pop().buffers.close()

    def _programs(self) -> list[SubgraphProgram]:
        """All programs that recordings may name."""
        programs: list[Any] = [program for subgraph in self._subgraphs.values() for program in subgraph.programs]
        return [*programs, *self._retired]

    def _row_ranges(self, subgraph: Subgraph, lengths: Sequence[int]) -> Iterator[SubgraphRun]:
        """Runs of a segment: sequences of equal lengths together, while their tensors are small enough."""

        def most(rows: int) -> int:
            if (id(subgraph), rows) not in self._most:
                largest = max(
                    (t.size for t in _allocated_tensors(subgraph.bind_rows(rows), self._context.caps)), default=1
                )
                room = min(self._context.caps.max_binding, _TENSOR_BYTES) // max(4 * largest, 1)
                self._most[id(subgraph), rows] = max(1, min(room, CHUNK_ROWS // rows))
            return self._most[id(subgraph), rows]

        return subgraph.batched_runs(lengths, most)

    def _lies_dense(self, i: int, run: SubgraphRun) -> bool:
        """Whether the rows of a value are where a program needs them: contiguous from the start of its buffer."""
        tensor = self._graph.tensors[i]
        return run.start == 0 and run.gapless and row_words(tensor) == tensor.width

    def _is_state(self, i: int) -> bool:
        return self._graph.tensors[i].role == "state"

    def _state_buffer(self, i: int) -> str:
        return fixed_name(self._graph.tensors[i].key or "")

    def _state(self, i: int, run: SubgraphRun, buffers: dict[str, str], *, back: bool) -> RecordedDispatch:
        words, count = self._graph.tensors[i].size, run.sequences
        dims = (words, count, run.start, run.stride, run.rows)
        return RecordedDispatch(dispatch=move_state(count * words, back=back), buffers=buffers, dims=dims)

    def _positions_entry(self, run: SubgraphRun, buffers: dict[str, str]) -> RecordedDispatch:
        dims = (run.total, run.rows, run.start, run.stride)
        return RecordedDispatch(dispatch=move_places(run.total), buffers=buffers, dims=dims)

    def _rows(self, i: int, run: SubgraphRun, buffers: dict[str, str], *, back: bool) -> RecordedDispatch:
        tensor = self._graph.tensors[i]
        width, stride = tensor.width, row_words(tensor)
        outside, inside = (stride * run.start, stride, stride * run.stride), (0, width, width * run.rows)
        ends = (*inside, *outside) if back else (*outside, *inside)
        dims = (run.total, run.rows, width, *ends)
        return RecordedDispatch(dispatch=move_rows(width * run.total), buffers=buffers, dims=dims)

    def _binder(self, number: int) -> Callable[[Graph], SubgraphProgram]:
        def compile_it(graph: Graph) -> SubgraphProgram:
            self._program_count += 1
            return self._compile(graph, f"core {number}, program {self._program_count}")

        return compile_it

    def _compile(self, bound: Graph, label: str) -> SubgraphProgram:
        """Record a subgraph bound to a number of rows, and create its buffers."""
        context = self._context
        graph = rewrite_for_gpu(with_products(bound, self._products(bound)), context.caps)
        most = context.caps.max_binding
        slots, own = BufferNames(f"{label}: scratch", most), OwnedBuffers(context)
        inputs = {i: slots.new(4 * graph.tensors[i].size, graph.tensors[i].name) for i in graph.inputs}
        constants = {i: slots.new(4 * graph.tensors[i].size, graph.tensors[i].name) for i in graph.constants}
        keyed = {
            i: self._weights.dense_buffer(t.key) for i, t in enumerate(graph.tensors) if t.role == "parameter" and t.key
        }
        entries, names = record_graph(graph, {**keyed, **inputs, **constants}, slots, context.caps)
        try:
            own.make_all(slots.sizes)
            for i, value in graph.constants.items():
                if value.size:
                    dtype = np.int32 if graph.tensors[i].dtype == "int32" else np.float32
                    context.write(own[constants[i]], value.astype(dtype))
        except Exception:
            own.close()
            raise
        return SubgraphProgram(
            entries=entries,
            inputs=[inputs[i] for i in graph.inputs],
            outputs=[names[i] for i in graph.outputs],
            buffers=own,
            retired=self._retired,
        )


def products_of_subgraphs(params: Params, options: RunOptions, caps: Caps) -> Callable[[Graph], ProductType]:
    """Return how a subgraph multiplies: unasked in float16 only where all its matrices have 16 bits or less."""
    if not multiplies_halves(options.compute, caps):
        return lambda graph: "float32"
    if options.compute == "float16":
        return lambda graph: "scaled float16"
    narrow = {key for key, store in params.items() if store.scheme.dtype.bits <= 16}

    def products(graph: Graph) -> ProductType:
        keys = {key for key, t in graph.tensors_by_key.items() if t.role == "parameter" and len(t.shape) > 1}
        return "scaled float16" if keys and keys <= narrow else "float32"

    return products


def row_nodes_and_subgraphs(graph: Graph, parts: Sequence[Segment]) -> tuple[Node, ...]:
    """Nodes on rows, and one node ``core`` for each segment between them, with its input and output values."""
    nodes: list[Node] = []
    for part in parts:
        if part.graph is None:
            nodes += part.nodes
            continue
        inputs, outputs = (
            tuple(i for i in tensors if graph.tensors[i].role != "state" and i not in graph.derived)
            for tensors in (part.inputs, part.outputs)
        )
        nodes.append(Node(op="core", inputs=inputs, outputs=outputs, where=part.name, tail=part.tail))
    return tuple(nodes)


def rows_of_subgraphs(parts: Sequence[Segment], most: int, caps: Caps, *, whole: bool) -> int:
    """Number of rows, at most `most`, with which every tensor of these segments is small enough.

    Parameters
    ----------
    whole : rows of a sequence run together, so that only the GPU's binding limit reduces their number
    """
    limit = caps.max_binding if whole else min(caps.max_binding, _TENSOR_BYTES)
    graphs = [part.graph for part in parts if part.graph is not None]
    rows = most if whole else min(most, CHUNK_ROWS)
    while rows > 1 and any(4 * t.size > limit for graph in graphs for t in _allocated_tensors(bind(graph, rows), caps)):
        rows = (rows + 1) // 2
    return rows


def _allocated_tensors(graph: Graph, caps: Caps) -> list[Tensor]:
    """Tensors that need memory; columns that products compute on the fly do not."""
    prepared_graph = rewrite_for_gpu(graph, caps)
    return [prepared_graph.tensors[i] for node in prepared_graph.nodes for i in node.outputs]
