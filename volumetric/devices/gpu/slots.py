"""Planning of buffers: tensors take over those that are done with. Names and sizes alone; who binds makes the buffers.

Buffers stay separate, never slices of one arena: wgpu tracks hazards by whole buffer. Of the free ones that fit, the
one free for longest is taken, so that a new writer seldom waits for a recent reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from volumetric.base.errors import DeviceError
from volumetric.graph.liveness import last_use, roots
from volumetric.graph.ops import Graph, Tensor

_ROOMY = 1.25
"""How much larger than needed a buffer may be that is taken over."""


def too_large(label: str, nbytes: int, most: int) -> DeviceError:
    """Error for a tensor that no binding holds."""
    return DeviceError(
        f"a tensor of the graph ({label}) needs {nbytes >> 10} KiB; this GPU binds at most {most >> 10} KiB",
        hint="use smaller batches, or device='cpu'",
    )


class Slots:
    """Names of buffers, handed out and handed back while a recording is made.

    Parameters
    ----------
    prefix : of the names
    most : bytes that one buffer may have

    Attributes
    ----------
    sizes : name → bytes
    """

    def __init__(self, prefix: str, most: int) -> None:
        self.sizes: dict[str, int] = {}
        self._prefix = prefix
        self._most = most
        self._free: list[str] = []

    def take(self, nbytes: int, label: str) -> str:
        """Return a buffer of at least `nbytes`; `label` says in errors what it is for."""
        size = max(-(-nbytes // 16) * 16, 16)
        for i, name in enumerate(self._free):
            if size <= self.sizes[name] <= _ROOMY * size:
                return self._free.pop(i)
        return self.new(nbytes, label)

    def new(self, nbytes: int, label: str) -> str:
        """Return a buffer that has not been used before.

        Raises
        ------
        DeviceError : one buffer cannot have so many bytes
        """
        if nbytes > self._most:
            raise too_large(label, nbytes, self._most)
        name = f"{self._prefix} {len(self.sizes)}"
        self.sizes[name] = max(-(-nbytes // 16) * 16, 16)
        return name

    def give(self, name: str) -> None:
        """Hand a buffer back: what is recorded after this may overwrite it."""
        self._free.append(name)


class Tenants:
    """Tensor → name of its buffer, node by node. Views share the buffer of what they view.

    Parameters
    ----------
    graph : its nodes run in order; its outputs stay
    buffers : tensors that have a buffer: inputs, constants, and all with a key that nodes touch
    nbytes : bytes of a tensor
    """

    def __init__(self, graph: Graph, buffers: Mapping[int, str], slots: Slots, nbytes: Callable[[Tensor], int]) -> None:
        self._graph = graph
        self._slots = slots
        self._nbytes = nbytes
        self._roots = roots(graph)
        self._last = last_use(graph)
        self._lives: set[int] = set()
        self.names = dict(buffers)

    def __getitem__(self, i: int) -> str:
        """Buffer of tensor `i`."""
        return self.names[self._roots[i]]

    def is_wanted(self, i: int) -> bool:
        """Whether anybody reads tensor `i`, now or in a later run."""
        return self._graph.tensors[i].key is not None or self._last[self._roots[i]] >= 0

    def begin(self, at: int) -> None:
        """Find buffers for what node `at` writes."""
        for i in self._graph.nodes[at].outputs:
            tensor = self._graph.tensors[i]
            if self._roots[i] == i and i not in self.names and tensor.key is None:
                self.names[i] = self._slots.take(self._nbytes(tensor), tensor.name)
                self._lives.add(i)

    def end(self, at: int) -> None:
        """Hand back the buffers of what nobody needs after node `at`."""
        node = self._graph.nodes[at]
        guard = node.guard[:1] if node.guard else ()
        for i in sorted({self._roots[i] for i in (*node.inputs, *guard, *node.outputs)} & self._lives):
            if self._last[i] <= at:
                self._slots.give(self.names[i])
                self._lives.discard(i)
