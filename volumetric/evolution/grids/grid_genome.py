"""A network as a genome: structure, weights and markings; and its outputs for independent samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Packed
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.layers import LayerSpec
from volumetric.network import Network, check_params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import Params, WeightStore
from volumetric.network.wiring import check_order
from volumetric.run.device import Executable
from volumetric.run.graph import graph_of
from volumetric.run.lower import lower, mixing_step
from volumetric.run.plan import DELAYS, Plan
from volumetric.run.sequence_state import check_input, inputs_by_name

ROWS: Final = 1024
"""Maximum rows computed together, unless a sequence is longer."""


def looks_around(plan: Plan) -> bool:
    """Whether a layer reads other rows of a call. Rows of several axes are independent."""
    return mixing_step(plan) is not None


def separate_samples(network: Network, x: Array) -> Array:
    """Return samples ``[samples, …]`` in a form that no layer of `network` treats as one sequence.

    If layers read other rows, samples become sequences of one row, ``[samples, 1, …]``; sequences are unchanged.
    """
    rows = x.ndim == len(network.input_shape) + 1
    return x[:, None] if rows and looks_around(lower(network)) else x


def outputs_of(network: Network, params: Mapping[str, WeightStore], x: Array) -> NDArray[np.float32]:
    """Return the outputs for samples: rows ``[samples, …]`` or sequences ``[samples, T, …]``, computed independently.

    Raises
    ------
    ShapeError : the network expects another shape
    """
    inputs_by_name(lower(network), x)
    x, original = separate_samples(network, np.asarray(x)), np.asarray(x)
    one_row = x.ndim != original.ndim
    run = _sequences if x.ndim == len(network.input_shape) + 2 else _rows
    with np.errstate(all="ignore"):  # the caller handles non-finite values
        outputs = np.concatenate(list(run(network, Params(params), x)))
    return outputs[:, 0] if one_row else outputs


def _rows(network: Network, params: Params, x: Array) -> Iterator[Array]:
    executable = ReferenceDevice().compile(lower(network), params)
    for start in range(0, max(1, len(x)), ROWS):
        yield executable.forward(executable.new_state(), x[start : start + ROWS], last_only=False)


def _sequences(network: Network, params: Params, x: Array) -> Iterator[Array]:
    """Run sequences of equal length in parallel."""
    plan, device = lower(network), NumpyGraphs()
    if any(step.op in DELAYS for step in plan.steps):
        executable = ReferenceDevice().compile(plan, params)
        for one in x:
            yield executable.forward(executable.new_state(), one, last_only=False)[None]
        return
    checked = check_input(plan, x.reshape(-1, *x.shape[2:])).reshape(x.shape)
    store = device.store()
    for key in plan.params:
        store.write(key, params[key].values())
    together = max(1, ROWS // x.shape[1])
    for start in range(0, len(x), together):
        part = checked[start : start + together]
        graph = graph_of(network, part.shape[1], sequences=len(part))
        yield device.compile(graph, store).run([part])[0]


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allele:
    """Layer and weights at one marking.

    Attributes
    ----------
    spec, disabled : the layer, and whether it is disabled
    weights : its concatenated weights
    size : sum of their absolute values
    """

    spec: LayerSpec
    disabled: bool
    weights: NDArray[np.float32]
    size: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridGenome:
    """One network of a population.

    Attributes
    ----------
    network, params : structure and weights
    markings : coordinate → historical marking of its layer
    link_markings : historical markings of the links of the network, in order

    Raises
    ------
    SpecError : a layer or link has no marking, or links form a cycle without a delay
    """

    network: Network
    params: Params
    markings: Mapping[Coord, int]
    link_markings: tuple[int, ...] = ()
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that every layer and link is marked."""
        if set(self.markings) != set(self.network.layers):
            raise SpecError("a genome needs exactly one marking for every layer")
        if len(self.link_markings) != len(self.network.links):
            raise SpecError("a genome needs a marking for every link")
        check_order(self.network.wires, self.network.layers)
        object.__setattr__(self, "markings", MappingProxyType(dict(sorted(self.markings.items()))))

    @staticmethod
    def first(network: Network, params: Mapping[str, WeightStore]) -> GridGenome:
        """Mark the layers of a network in reading order, then its links."""
        check_params(network, params)
        layers = {coord: number for number, coord in enumerate(network.layers)}
        links = tuple(range(len(layers), len(layers) + len(network.links)))
        return GridGenome(network=network, params=Params(params), markings=layers, link_markings=links)

    @property
    def genes(self) -> frozenset[int]:
        """All markings."""
        return self._cached("genes", lambda: frozenset((*self.markings.values(), *self.link_markings)))

    @property
    def alleles(self) -> Mapping[int, Allele]:
        """Return marking → layer and weights; weights owned by another layer are excluded."""
        return self._cached("alleles", lambda: {m: self._allele(coord) for coord, m in self.markings.items()})

    def _allele(self, coord: Coord) -> Allele:
        values = [self.params[key].values().ravel() for key in self.layer_keys(coord).values()]
        weights = np.concatenate(values) if values else np.empty(0, np.float32)
        return Allele(
            spec=self.network.layers[coord],
            disabled=coord in self.network.disabled,
            weights=weights,
            size=float(np.abs(weights).sum(dtype=np.float64)),
        )

    def _cached(self, name: str, make: Callable[[], T]) -> T:
        """Return a cached value derived from the fields."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def forward(self, x: Array) -> NDArray[np.float32]:
        """Run the network on one sequence of rows ``[T, …]`` from an empty state; return the output of every row.

        This uses the reference device, without compilation; use `volumetric.open_device` for large networks. For
        independent samples see `predict`.
        """
        return self.executable.forward(self.executable.new_state(), x, last_only=False)

    @property
    def executable(self) -> Executable:
        """The network on the reference device."""
        return self._cached("executable", lambda: ReferenceDevice().compile(lower(self.network), self.params))

    def predict(self, x: Array) -> NDArray[np.float32]:
        """Return the outputs for independent samples, computed on the reference device.

        Parameters
        ----------
        x : samples as rows ``[samples, …]`` or sequences of rows ``[samples, T, …]``. Each is computed independently,
            whatever layers the network has

        Raises
        ------
        ShapeError : the network reads something else
        """
        return outputs_of(self.network, self.params, x)

    def layer_keys(self, coord: Coord) -> dict[str, str]:
        """Return name within the layer at `coord` → key of the weight, for weights that no other layer owns."""
        start = f"{coord}/"
        names = [param.name for param in self.network.layers[coord].tensors()]
        return {name: start + name for name in names if self.network.resolve(start + name) == start + name}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GridGenome):
            return NotImplemented
        same = (self.network, self.markings, self.link_markings) == (other.network, other.markings, other.link_markings)
        return same and all(_equal(store.packed(), other.params[key].packed()) for key, store in self.params.items())

    def __hash__(self) -> int:
        return hash((self.network.to_json(), tuple(self.markings.values()), self.link_markings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as JSON and arrays, for worker processes: the network's views cannot be pickled."""
        stored = {key: store.packed() for key, store in self.params.items()}
        return _rebuild, (self.network.to_json(), stored, list(self.markings.values()), self.link_markings)


def _rebuild(network: str, stored: dict[str, Packed], markings: Sequence[int], links: tuple[int, ...]) -> GridGenome:
    built = Network.from_json(network)
    return GridGenome(
        network=built,
        params=Params({key: WeightStore.from_packed(packed) for key, packed in stored.items()}),
        markings=dict(zip(built.layers, markings, strict=True)),
        link_markings=links,
    )


def _equal(a: Packed, b: Packed) -> bool:
    def same(x: NDArray[Any] | None, y: NDArray[Any] | None) -> bool:
        return (x is None) == (y is None) and (x is None or y is None or x.tobytes() == y.tobytes())

    parts = ((a.payload, b.payload), (a.scales, b.scales), (a.offsets, b.offsets))
    return (a.scheme, a.shape) == (b.scheme, b.shape) and all(same(x, y) for x, y in parts)


@dataclass(frozen=True, slots=True)
class GridPool:
    """The genomes of a generation."""

    members: tuple[GridGenome, ...]

    def __len__(self) -> int:
        return len(self.members)

    def genome(self, row: int) -> GridGenome:
        """Return one genome."""
        return self.members[row]

    def concatenate(self, other: GridPool) -> GridPool:
        """Return these genomes, then those of another pool."""
        return GridPool((*self.members, *other.members))

    def take(self, rows: NDArray[np.int64]) -> GridPool:
        """Return some of the genomes."""
        return GridPool(tuple(self.members[row] for row in rows.tolist()))


@dataclass(slots=True)
class GridInnovations:
    """Markings assigned so far, and those of the current generation: equal changes get equal markings.

    Attributes
    ----------
    next : the next marking
    events : event of this generation → its marking
    """

    next: int
    events: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def mark(self, event: tuple[Any, ...]) -> int:
        """Return the marking of `event`, a new one if it is new in this generation."""
        if event not in self.events:
            self.events[event] = self.next
            self.next += 1
        return self.events[event]

    def begin_generation(self) -> None:
        """Clear the events of the last generation."""
        self.events.clear()
