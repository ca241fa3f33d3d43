"""What a device offers for graphs: persistent buffers, and programs that run a graph on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from volumetric.base._typing import Array
from volumetric.dtypes import Scheme
from volumetric.graph.ops import Graph

Rounds: TypeAlias = Literal["native", "codec"]
"""A kernel of the device rounds, or the codec does on the host, between two parts of a run."""


class TensorStore(Protocol):
    """Named buffers on a device, float32 or int32, that outlive programs."""

    def put(self, key: str, value: Array) -> None:
        """Create a buffer, or overwrite it. Raises `ShapeError` if one of another shape or type is there."""
        ...

    def put_together(self, values: Mapping[str, Array]) -> None:
        """Put several that programs read and assign whole: a device may keep small ones side by side."""
        ...

    def get(self, key: str) -> Array:
        """Copy a buffer back to the host. Raises `KeyError`."""
        ...

    def seen(self, key: str) -> Array | None:
        """Return a buffer where it lies in host memory, to be read at once; None elsewhere. Raises `KeyError`."""
        ...

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        ...

    def share(self, keys: Iterable[str]) -> Any:
        """Return a new store that has these buffers too, for both to read. Raises `KeyError`.

        Nothing is copied, and a buffer lasts until both have dropped it.
        """
        ...

    def drop(self, key: str) -> None:
        """Give a buffer back; no program may use it any more. Raises `KeyError`."""
        ...


class GraphProgram(Protocol):
    """A graph bound to the buffers of a store, with scratch memory of its own."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run all nodes.

        Parameters
        ----------
        inputs : one for each of the graph's inputs, of its exact shape; ids must be in range

        Returns
        -------
        One array for each of the graph's outputs, which the caller owns.

        Raises
        ------
        ShapeError
            An input has another shape or kind of number.
        """
        ...


class GraphDevice(Protocol):
    """Compiles graphs.

    Attributes
    ----------
    parted : parts of an operation that nobody reads cost little, so that what fires at different times is better
        computed side by side; else whole operations are left out, see `Guard`
    unrolled : a graph of several ticks runs faster than as many runs of a graph of one, which is sooner built
    """

    parted: bool
    unrolled: bool

    @staticmethod
    def rounds(scheme: Scheme) -> Rounds | None:
        """How weights are rounded to `scheme` for a forward pass; None: the device cannot."""
        ...

    def store(self) -> Any:
        """Return a new, empty `TensorStore`."""
        ...

    def compile(self, graph: Graph, store: Any) -> GraphProgram:
        """Bind `graph` to `store`, a store of this device.

        Raises
        ------
        UnsupportedError
            The device has no kernel for a node.
        SpecError
            The store has no buffer for a key of the graph.
        ShapeError
            A buffer has another shape or type than the graph's tensor.
        """
        ...


class HasGraphs(Protocol):
    """A device that runs tensor graphs."""

    def graphs(self) -> GraphDevice:
        """Return what compiles them."""
        ...
