"""Stack: places recognised layers in a grid, block by block, with residual sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.parameter_fills import ParameterFill, prefix_fills, store_of
from volumetric.dtypes import DType, Scheme
from volumetric.layers import BatchNorm2d, Conv2d, LayerSpec, Parallel, Residual, Sequential
from volumetric.loaders.target_schemes import target_schemes
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A network, and the fill of each parameter."""

    network: Network
    fills: Mapping[str, ParameterFill]

    def mount(self, source: TensorSource, dtype: str | DType | Scheme | None, where: str) -> Params:
        """Return the parameters as lazy stores; each one comes from a tensor of the file."""
        targets = target_schemes(self.network, dtype)
        return Params(
            {
                key: store_of(self.fills[key], spec.shape, source, targets[key], where)
                for key, spec in self.network.param_specs().items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAttempt:
    """Result of an attempt to build a network; see `Detection` for the fields."""

    architecture: str
    certainty: Certainty
    reason: str
    plan: NetworkPlan | None
    placed: tuple[str, ...]
    assumed: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def tensors(self) -> set[str]:
        """Tensors that have a place."""
        return set(self.placed)


FilledLayer = tuple[LayerSpec, Mapping[str, ParameterFill]]
"""A layer, and the fills of its parameters."""


@dataclass(slots=True)
class ImageNetworkBuilder:
    """An image network under construction; `placed` are the tensors that have a place."""

    layers: dict[Coord, LayerSpec] = field(default_factory=dict)
    fills: dict[str, ParameterFill] = field(default_factory=dict)
    _z: int = 0
    _slot: int = 0

    def next_plane(self) -> None:
        """Go to the next plane."""
        self._z, self._slot = self._z + 1, 0

    def add(self, spec: LayerSpec, fills: Mapping[str, ParameterFill] | None = None) -> Coord:
        """Place a layer in the next slot and return where it is."""
        at = Coord(self._z, 0, 0, self._slot)
        self.layers[at] = spec
        self.fills |= {f"{at}/{name}": fill for name, fill in (fills or {}).items()}
        self._slot += 1
        return at

    def add_sum(self, before: Coord, main: Sequence[FilledLayer], short: Sequence[FilledLayer]) -> None:
        """Add a residual block on the output of `before`: `main`, plus the identity or `short`."""
        if not short:
            for spec, own in main:
                self.add(spec, own)
            self.add(Residual(source=str(before)))
            return
        branches = tuple(Sequential(layers=tuple(spec for spec, _ in way)) for way in (main, short))
        fills: dict[str, ParameterFill] = {}
        for i, way in enumerate((main, short)):
            for j, (_, own) in enumerate(way):
                fills |= prefix_fills(own, f"{i}/{j}")
        self.add(Parallel(branches=branches, combine="add"), fills)

    def plan(self, input_shape: Shape) -> NetworkPlan:
        """Return the network. Raises `ShapeError` if a layer cannot read the output of the layer before it."""
        slots = 1 + max(coord.slot for coord in self.layers)
        network = Network(
            grid=Grid(self._z + 1, 1, 1, slots), layers=self.layers, input_shape=input_shape, input_dtype="float32"
        )
        return NetworkPlan(network=network, fills=self.fills)

    @property
    def placed_tensors(self) -> tuple[str, ...]:
        """Tensors that have a place."""
        return tuple(name for fill in self.fills.values() for name in fill.tensors)


def convolution(finding: Finding, channels: int, **fields: Any) -> FilledLayer:
    """A convolution on so many channels; the number of groups follows from the channels that a filter reads.

    Raises
    ------
    SpecError
        It is not a convolution, or reads other numbers of channels.
    """
    spec = finding.layer
    if not isinstance(spec, Conv2d) or channels % spec.in_channels:
        raise SpecError(f"{finding.path or 'a convolution'} does not read {channels} channels")
    spec = replace(spec, in_channels=channels, groups=channels // spec.in_channels, **fields)
    return spec, finding.fills


def batch_norm(finding: Finding, channels: int, **fields: Any) -> FilledLayer:
    """A batch norm of so many channels. Raises `SpecError` if it is not one."""
    spec = finding.layer
    if not isinstance(spec, BatchNorm2d) or spec.num_features != channels:
        raise SpecError(f"{finding.path} is not a batch norm of {channels} channels")
    return replace(spec, **fields), finding.fills


def image_shape(stated_shape: Any, channels: int, size: int) -> Shape:
    """Shape of an image: from the user, or a square with so many channels. Raises `SpecError` if it is not an image."""
    if stated_shape is None:
        return channels, size, size
    whole = isinstance(stated_shape, (list, tuple)) and all(type(n) is int and 0 < n < 2**16 for n in stated_shape)
    if not whole or len(stated_shape) != 3 or stated_shape[0] != channels:
        raise SpecError(
            f"guess: input_shape {stated_shape} is not the shape of an image",
            hint=f"for example {[channels, size, size]}",
        )
    return tuple(stated_shape)
