"""Fold the standardisation of inputs into a network's weights, for file formats that cannot store it.

A layer that multiplies the standardised input ``(x − μ) / σ`` by W gives the same result for x with ``W / σ`` and
``b − W μ / σ``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from volumetric.analysis.standardise import Standardisation
from volumetric.base._typing import Array, F32Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.layers import Dense, Flatten, LayerSpec, Reshape, Sequential
from volumetric.layers.conv import Conv
from volumetric.layers.layer_spec import params_below, show_shape
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import INPUT, Network, Params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore
from volumetric.network.wiring import Source, Wire

_FARTHEST: Final = 4096.0
"""Maximum distance of a mean from 0, in deviations: float32 sums then lose 2⁻¹² of a deviation (this times 2⁻²⁴)."""
_HINT: Final = "use format native, which stores the standardisation with the network"


def fold_inputs(model: LoadedModel) -> LoadedModel:
    """Return a model that reads raw inputs and computes the same as `model` does from standardised ones.

    Mean and deviation are folded into the Dense layers and convolutions that read the input. Their weights become
    float32, and they get a bias if they had none; reshapes may come before them, and they may be inside a Sequential.
    The outputs differ by float32 rounding.

    Parameters
    ----------
    model : a model without `inputs` is returned unchanged

    Raises
    ------
    UnsupportedError
        Another kind of layer reads the input, or the input is added to something or is an output; a convolution pads
        with zeros, which would not be the mean; or means are so far from 0 that float32 would lose the differences.
    """
    if model.inputs is None:
        return model
    network, params = _InputFolder(model.network, model.params).fold(model.inputs)
    return dataclasses.replace(model, network=network, params=params, inputs=None)


@dataclass(frozen=True, slots=True)
class _Statistics:
    """Mean and deviation of every element of a row, in its shape."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, inputs: Standardisation, row: Shape) -> _Statistics:
        """Broadcast to a row: along its last axis, or over all axes, as in `Standardisation.apply`."""
        parts = (np.array(inputs.mean), np.array(inputs.deviation))
        count = len(inputs.mean)
        if row and row[-1] == count:
            return cls(*(np.broadcast_to(part, row) for part in parts))
        return cls(*(part.reshape(row) for part in parts))

    def reshaped(self, row: Shape) -> _Statistics:
        """Return the statistics reshaped to `row`, with the same number of elements."""
        return _Statistics(self.mean.reshape(row), self.deviation.reshape(row))

    def along(self, axis: int, where: str) -> tuple[Array, Array]:
        """Mean and deviation along one axis; refuse statistics that differ along other axes."""
        flat = [np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1) for part in (self.mean, self.deviation)]
        if any((part != part[:, :1]).any() for part in flat):
            raise _cannot_fold(
                where, "shares weights between positions of a row, which have different means or deviations"
            )
        return flat[0][:, 0], flat[1][:, 0]


_FoldedLayer: TypeAlias = tuple[LayerSpec, dict[str, F32Array], _Statistics | None]
"""A layer that reads the raw input, its new weights, and the statistics of its output if it is still the input."""


class _InputFolder:
    """A pass through a network in reading order that follows the input to the layers that multiply it."""

    def __init__(self, network: Network, params: Mapping[str, WeightStore]) -> None:
        self._network, self._params = network, dict(params)
        self._layers = dict(network.layers)
        self._input_statistics: dict[Coord, _Statistics] = {}
        self._output_statistics: dict[Coord, _Statistics] = {}

    def fold(self, inputs: Standardisation) -> tuple[Network, Params]:
        """Return the network and its parameters with the standardisation of `inputs` folded into the first layers."""
        first = _Statistics.of(inputs, self._network.input_shape)
        _check_range(first)
        for wire in self._network.wires:
            self._fold_wire(wire, first)
        for name, coord in self._network.taps.items():
            if coord in self._output_statistics:
                raise _cannot_fold(f"output {name!r}", "is the standardised input")
        network = dataclasses.replace(self._network, layers=self._layers)
        return network, Params({key: self._params[key] for key in network.param_specs()})

    def _fold_wire(self, wire: Wire, first: _Statistics) -> None:
        coord, spec = wire.coord, self._layers[wire.coord]
        sources = wire.inputs if wire.skip is None else (*wire.inputs, wire.skip)
        by_source = [self._statistics(source, first) for source in sources]
        standardised = [statistics for statistics in by_source if statistics is not None]
        if not standardised:
            return
        where = f"{spec.kind} at {coord}"
        if len(sources) > 1:
            raise _cannot_fold(where, "adds the standardised input to something else")
        if next(iter(sources)).delay:
            raise _cannot_fold(where, "reads earlier rows of the standardised input, which are initially 0")
        self._input_statistics[coord] = standardised[0]
        if wire.identity:
            self._output_statistics[coord] = standardised[0]
            return
        shared = (link for link in self._network.links if link.kind == "shared")
        if spec.params() and any(coord in (link.source, link.target) for link in shared):
            raise _cannot_fold(where, "shares its weights with another layer")
        stores = {param.name: self._params[f"{coord}/{param.name}"] for param in spec.params()}
        self._layers[coord], changed, output_statistics = _fold_layer(spec, stores, standardised[0], where)
        self._params |= {f"{coord}/{name}": WeightStore.from_array(values) for name, values in changed.items()}
        if output_statistics is not None:
            self._output_statistics[coord] = output_statistics

    def _statistics(self, source: Source, first: _Statistics) -> _Statistics | None:
        """Statistics of a value that is still the input; None for all others."""
        if source.coord is None:
            return first if source.port == INPUT else None
        return (self._output_statistics if source.side == "output" else self._input_statistics).get(source.coord)


def _fold_layer(spec: LayerSpec, stores: Mapping[str, Any], statistics: _Statistics, where: str) -> _FoldedLayer:
    """Make a layer read the raw input."""
    if isinstance(spec, Reshape | Flatten):
        return spec, {}, statistics.reshaped(spec.output_shape((1, *statistics.mean.shape))[1:])
    if isinstance(spec, Sequential):
        return _fold_sequential(spec, stores, statistics, where)
    if isinstance(spec, Dense):
        mean, deviation = statistics.along(-1, where)
        weight = stores["weight"].values().astype(np.float64) / deviation
        constant = weight @ mean
    elif isinstance(spec, Conv):
        mean, deviation = statistics.along(0, where)
        windows = spec.windows()
        if mean.any() and any((*windows.before, *windows.after)):
            raise _cannot_fold(where, "pads with zeros, which are the mean only if the mean is 0")
        old = stores["weight"].values().astype(np.float64)
        # W is [out, in / groups, *kernel]; the group of an output channel determines its input channels.
        input_channels = np.repeat(
            np.arange(spec.in_channels).reshape(spec.groups, -1), spec.out_channels // spec.groups, axis=0
        )
        input_channels = input_channels.reshape(*input_channels.shape, *(1,) * spec.spatial)
        weight = old / deviation[input_channels]
        constant = (weight * mean[input_channels]).reshape(len(weight), -1).sum(1)
    else:
        raise _cannot_fold(where, "reads the standardised input and is neither a dense layer nor a convolution")
    bias = stores["bias"].values().astype(np.float64) if spec.bias else np.zeros(len(weight))
    changed = {"weight": weight, "bias": bias - constant}
    with np.errstate(over="ignore"):
        singles = {name: values.astype(np.float32) for name, values in changed.items()}
    if not all(np.isfinite(values).all() for values in singles.values()):
        raise _cannot_fold(where, "would have weights that overflow float32: deviations are too small")
    return dataclasses.replace(spec, bias=True), singles, None


def _fold_sequential(spec: Sequential, stores: Mapping[str, Any], statistics: _Statistics, where: str) -> _FoldedLayer:
    values: list[_Statistics | None] = [statistics]
    layers, changed = list(spec.layers), dict[str, F32Array]()
    for i, child in enumerate(spec.layers):
        read = [values[j] for j in spec.sources(i)]
        output_statistics: _Statistics | None = None
        if len(read) > 1 and any(read):
            raise _cannot_fold(f"layer {i} of {where}", "adds the standardised input to something else")
        if read[0] is not None:
            layers[i], new, output_statistics = _fold_layer(
                child, params_below(stores, str(i)), read[0], f"layer {i} of {where}"
            )
            changed |= {f"{i}/{name}": array for name, array in new.items()}
        values.append(output_statistics)
    return dataclasses.replace(spec, layers=tuple(layers)), changed, values[-1]


def _check_range(statistics: _Statistics) -> None:
    away = np.abs(statistics.mean) / statistics.deviation
    worst = np.unravel_index(np.argmax(away), away.shape)
    if away[worst] > _FARTHEST:
        place = show_shape(tuple(map(int, worst)))
        raise _cannot_fold(
            f"feature {place}",
            f"has mean {statistics.mean[worst]:g} and deviation {statistics.deviation[worst]:g}, "
            "so float32 would lose the differences",
        )


def _cannot_fold(what: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"cannot fold the standardisation of inputs into the weights: {what} {why}", hint=_HINT)
