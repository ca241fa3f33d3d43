"""What runs between the operations on rows of a network: programs, their parameters, what they find in a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volumetric._typing import Array
from volumetric.network import Params
from volumetric.runtime.cpu.layout import Layout
from volumetric.runtime.cpu.state import CpuState
from volumetric.runtime.graph.cores import Core, Stretch
from volumetric.runtime.graph.ops import Graph
from volumetric.runtime.graph.segments import Cut


class Between:
    """Cores of a network.

    Parameters
    ----------
    params : those that they read are kept in float32
    threads : that a program may use

    Attributes
    ----------
    cores : by the place of their segment in the cut
    weight_bytes : of their parameters
    """

    def __init__(self, cut: Cut, params: Params, threads: int) -> None:
        self.cores: dict[int, Core] = {}
        self.weight_bytes = 0
        apart = {at: part for at, part in enumerate(cut.parts) if part.graph is not None}
        if not apart:
            return
        from volumetric.runtime.cpu.graph.device import CpuGraphs  # many kernels, which most language models never need

        graphs = CpuGraphs(threads)
        store = graphs.store()
        for at, part in apart.items():
            self.cores[at] = Core(cut.graph, part, lambda graph: graphs.compile(graph, store))
            for key in sorted(part.parameters - store.buffers.keys()):
                store.put(key, params[key].values())
                params[key].release()
        self.weight_bytes = sum(array.nbytes for array in store.buffers.values())

    @property
    def scratch_bytes(self) -> int:
        """Memory of the programs that there are."""
        return sum(getattr(each, "scratch_bytes", 0) for core in self.cores.values() for each in core.programs)


@dataclass(frozen=True, slots=True, eq=False)
class CallValues:
    """A call of some rows of each of `states`, of which `outputs` rows are wanted."""

    graph: Graph
    layout: Layout
    states: Sequence[CpuState]
    lengths: Sequence[int]
    outputs: int

    def rows(self, tensor: int, stretch: Stretch) -> Array:
        """Rows of a value in its slot."""
        known = self.graph.tensors[tensor]
        every = self.layout.view(tensor)
        return every[stretch.start : stretch.start + stretch.rows].reshape(stretch.rows, *known.shape[1:])

    def state(self, tensor: int, piece: int) -> Array:
        """A fixed state of a sequence."""
        known = self.graph.tensors[tensor]
        return self.states[piece].memory.plain[known.key or ""].reshape(known.shape)

    def run(self, core: Core) -> None:
        """Compute a segment for the rows of this call, unless nobody asks for it."""
        lengths, positions = self.lengths, [state.position for state in self.states]
        if core.segment.tail:
            lengths, positions = [self.outputs], [0]
        guard = core.segment.guard
        if guard is None or self.rows(guard[0], Stretch(0, sum(lengths)))[:, guard[1]].any():
            core.run(self, lengths, positions)
