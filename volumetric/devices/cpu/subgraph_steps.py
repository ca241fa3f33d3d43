"""Subgraphs of a network that do not run on rows: their programs and parameters, and the values of a call they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volumetric.base._typing import Array
from volumetric.devices.cpu.cpu_state import CpuState
from volumetric.devices.cpu.step_table import StepTable
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.graph.ops import Graph
from volumetric.network import Params
from volumetric.run.graph.partition import Partition

if TYPE_CHECKING:
    from volumetric.run.graph.subgraphs import Subgraph, SubgraphRun


class SubgraphPrograms:
    """The fixed-shape subgraphs of a network.

    Parameters
    ----------
    params : parameters that the subgraphs read are kept in float32
    walker : executes their programs

    Attributes
    ----------
    cores : subgraph by the index of its segment in the cut
    weight_bytes : of their parameters
    """

    def __init__(self, partition: Partition, params: Params, executor: StepTableExecutor) -> None:
        self.cores: dict[int, Subgraph] = {}
        self.weight_bytes = 0
        self._store = None
        apart = {at: part for at, part in enumerate(partition.segments) if part.graph is not None}
        if not apart:
            return
        # Many kernels, which most language models never need.
        from volumetric.devices.cpu.graph.graphs import CpuGraphs
        from volumetric.run.graph.subgraphs import Subgraph

        graphs = CpuGraphs(executor.threads, executor=executor, batch_invariant=True)
        self._store = store = graphs.store()
        for at, part in apart.items():
            self.cores[at] = Subgraph(partition.graph, part, lambda graph: graphs.compile(graph, store))
            for key in sorted(part.parameters - store.buffers.keys()):
                store.write(key, params[key].values())
                params[key].release()
        self.weight_bytes: int = sum(array.nbytes for array in store.buffers.values())

    def update(self, params: Params) -> Params:
        """Replace parameters of subgraphs; return the others. Raises `ShapeError` if one has another shape."""
        mine = [] if self._store is None else [key for key in params if key in self._store.buffers]
        for key in mine:
            assert self._store is not None
            self._store.write(key, params[key].values())
        return Params({key: store for key, store in params.items() if key not in mine})

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory of the existing programs."""
        programs = [program for core in self.cores.values() for program in core.programs]
        shared = self._store.scratch.nbytes if self._store else 0
        return shared + sum(getattr(program, "constant_bytes", 0) for program in programs)


@dataclass(frozen=True, slots=True, eq=False)
class CallValues:
    """The values of a call with some rows of each of `states`, of which `outputs` rows are requested."""

    graph: Graph
    table: StepTable
    states: Sequence[CpuState]
    lengths: Sequence[int]
    outputs: int

    def view(self, tensor: int) -> Array:
        """The rows of a value, ``[rows, width]``; not for a value in the caller's array."""
        known = self.graph.tensors[tensor]
        return self.table.bytes_of(tensor).view(known.dtype).reshape(self.table.rows, -1)[:, : known.width]

    def rows(self, tensor: int, run: SubgraphRun) -> Array:
        """Some rows of a value."""
        every = self.view(tensor)[run.start : run.start + run.rows]
        return every.reshape(run.rows, *self.graph.tensors[tensor].shape[1:])

    def state(self, tensor: int, piece: int) -> Array:
        """A fixed state of a sequence."""
        known = self.graph.tensors[tensor]
        return self.states[piece].memory.plain[known.key or ""].reshape(known.shape)

    def run(self, core: Subgraph) -> None:
        """Compute a segment for the rows of this call, unless none of its outputs is requested."""
        from volumetric.run.graph.subgraphs import SubgraphRun

        lengths, positions = self.lengths, [state.position for state in self.states]
        if core.segment.tail:
            lengths, positions = [self.outputs], [0]
        predicate = core.segment.predicate
        if predicate is None or self.rows(predicate[0], SubgraphRun(0, sum(lengths)))[:, predicate[1]].any():
            core.run(self, lengths, positions)
