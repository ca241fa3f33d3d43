"""The interface of a device for graphs: persistent buffers, and programs that run a graph on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from volumetric.base._typing import Array
from volumetric.dtypes import Scheme
from volumetric.graph.ops import Graph, ProductType

Rounds: TypeAlias = Literal["native", "codec"]
"""A kernel of the device rounds ("native"), or the codec rounds on the host between two parts of a run."""


class TensorStore(Protocol):
    """Named buffers on a device, float32 or int32, that outlive programs."""

    def write(self, key: str, value: Array) -> None:
        """Create a buffer or overwrite it. Raises `ShapeError` if it exists with another shape or type."""
        ...

    def write_together(self, values: Mapping[str, Array]) -> None:
        """Put several buffers that programs read and assign whole: a device may store small ones contiguously."""
        ...

    def get(self, key: str) -> Array:
        """Copy a buffer back to the host. Raises `KeyError`."""
        ...

    def host_view(self, key: str) -> Array | None:
        """Return a view of a buffer in host memory, to be read at once; None if it is elsewhere. Raises `KeyError`."""
        ...

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        ...

    def share(self, keys: Iterable[str]) -> Any:
        """Return a new store that shares these buffers, read-only for both. Raises `KeyError`.

        Nothing is copied; a buffer is freed after both stores have dropped it.
        """
        ...

    def drop(self, key: str) -> None:
        """Free a buffer; no program may use it afterwards. Raises `KeyError`."""
        ...


class GraphProgram(Protocol):
    """A graph bound to the buffers of a store, with private scratch memory."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run all nodes.

        Parameters
        ----------
        inputs : one array for each input of the graph, of its exact shape; ids must be in range

        Returns
        -------
        One array for each of the graph's outputs, which the caller owns.

        Raises
        ------
        ShapeError
            An input has another shape or dtype.
        """
        ...


class GraphDevice(Protocol):
    """Compiles graphs.

    Attributes
    ----------
    parted : the device skips unread parts of an operation, so layers that fire at different ticks run faster as one
        operation; otherwise it skips whole operations only, see `Guard`
    products : types that products in training can have, see `Graph.products`; the first is the default
    unrolled : one graph of several ticks runs faster than repeated runs of a graph of one tick, but compiles longer
    """

    parted: bool
    unrolled: bool
    products: tuple[ProductType, ...]

    @staticmethod
    def rounding_of(scheme: Scheme) -> Rounds | None:
        """Return how weights are rounded to `scheme` for a forward pass; None: unsupported."""
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
        """Return the compiler of graphs."""
        ...
