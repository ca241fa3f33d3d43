"""Maps of a cell with states: an `AxonLinear` instead of each affine map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.axon_linear import AxonLinear
from volumetric.layers.layer_spec import Init, LayerSpec, ParamSpec

Projection: TypeAlias = Literal["dense", "axon"]
Maps: TypeAlias = Mapping[str, AxonLinear]
"""Name → map; its parameters and states are named below it. Empty if maps are affine."""


def check_projection(spec: LayerSpec, projection: object) -> None:
    """Raise `SpecError` unless `projection` is valid."""
    if projection not in ("dense", "axon"):
        raise SpecError(f"{spec.kind}: unknown projection {projection!r}", hint="one of dense, axon")


def axon_map(in_features: int, out_features: int, *, bias: bool = True) -> AxonLinear:
    """Return a map that mixes its input by a Walsh–Hadamard transform if the width is a power of two."""
    mix = "linear" if in_features & (in_features - 1) else "srht"
    return AxonLinear(in_features=in_features, out_features=out_features, bias=bias, mix=mix)


def map_params(maps: Maps, fresh: Mapping[str, Init] | None = None) -> Iterator[ParamSpec]:
    """Yield the parameters of maps; `fresh` overrides initial values by name."""
    for name, of in maps.items():
        for param in of.params():
            path = f"{name}/{param.name}"
            yield replace(param, name=path, init=(fresh or {}).get(path, param.init))


def map_states(maps: Maps, *inputs: Shape) -> Iterator[StateSpec]:
    """Yield the states of maps."""
    for name, of in maps.items():
        read = [(*shape[:-1], of.in_features) for shape in inputs[:1]]
        yield from (state.with_prefix(name) for state in of.states(*read))
