"""Planning of buffers by names and sizes: tensors reuse the buffers of dead ones. Binding creates the buffers.

Buffers stay separate, never slices of one arena: wgpu tracks hazards per whole buffer. Of the free ones that fit, the
one free for longest is taken, so that a new writer seldom waits for a recent reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from volumetric.base.errors import DeviceError
from volumetric.graph.liveness import last_use, view_roots
from volumetric.graph.ops import Graph, Tensor

_ROOMY = 1.25
"""Maximum ratio of a reused buffer's size to the needed size."""


def binding_error(label: str, nbytes: int, most: int) -> DeviceError:
    """Return the error for a tensor larger than any binding."""
    return DeviceError(
        f"a tensor of the graph ({label}) needs {nbytes >> 10} KiB; this GPU binds at most {most >> 10} KiB",
        hint="use smaller batches, or device='cpu'",
    )


class BufferNames:
    """Names of buffers, taken and given back during a recording.

    Parameters
    ----------
    prefix : prefix of the names
    most : maximum bytes of a buffer

    Attributes
    ----------
    sizes : name → bytes
    """

    def __init__(self, prefix: str, most: int) -> None:
        self.sizes: dict[str, int] = {}
        self._prefix = prefix
        self._most = most
        self._free: list[str] = []

    def acquire(self, nbytes: int, label: str) -> str:
        """Return a buffer of at least `nbytes`; `label` names its purpose in errors."""
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
            raise binding_error(label, nbytes, self._most)
        name = f"{self._prefix} {len(self.sizes)}"
        self.sizes[name] = max(-(-nbytes // 16) * 16, 16)
        return name

    def release(self, name: str) -> None:
        """Give a buffer back: commands recorded afterwards may overwrite it."""
        self._free.append(name)


class TensorBuffers:
    """Tensor → name of its buffer, node by node. Views share the buffer of their source.

    Parameters
    ----------
    graph : its nodes run in order; its outputs stay
    buffers : tensors that have a buffer: inputs, constants, and all with a key that nodes access
    nbytes : bytes of a tensor
    """

    def __init__(
        self, graph: Graph, buffers: Mapping[int, str], slots: BufferNames, nbytes: Callable[[Tensor], int]
    ) -> None:
        self._graph = graph
        self._slots = slots
        self._nbytes = nbytes
        self._roots = view_roots(graph)
        self._last = last_use(graph)
        self._lives: set[int] = set()
        self.names: dict[int, str] = dict(buffers)

    def __getitem__(self, i: int) -> str:
        """Buffer of tensor `i`."""
        return self.names[self._roots[i]]

    def is_read(self, i: int) -> bool:
        """Whether anything reads tensor `i`, now or in a later run."""
        return self._graph.tensors[i].key is not None or self._last[self._roots[i]] >= 0

    def begin(self, at: int) -> None:
        """Take buffers for the outputs of node `at`."""
        for i in self._graph.nodes[at].outputs:
            tensor = self._graph.tensors[i]
            if self._roots[i] == i and i not in self.names and tensor.key is None:
                self.names[i] = self._slots.acquire(self._nbytes(tensor), tensor.name)
                self._lives.add(i)

    def end(self, at: int) -> None:
        """Give back buffers that are not needed after node `at`."""
        node = self._graph.nodes[at]
        predicate = node.predicate[:1] if node.predicate else ()
        for i in sorted({self._roots[i] for i in (*node.inputs, *predicate, *node.outputs)} & self._lives):
            if self._last[i] <= at:
                self._slots.release(self.names[i])
                self._lives.discard(i)
