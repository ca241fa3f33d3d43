"""Batch norms folded into the layers before them, for inference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.layers import Dense, LayerSpec, Parallel, Residual, Sequential
from volumetric.layers.batch_norm import BatchNorm
from volumetric.layers.conv import Conv
from volumetric.layers.conv_transpose import ConvTranspose
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore

Stores: TypeAlias = dict[str, WeightStore]
"""Name below a layer → tensor."""


def fold_batchnorm(network: Network, params: Mapping[str, WeightStore]) -> tuple[Network, Params]:
    """Fold batch norms into the layers before them; return the smaller network and its weights.

    At inference a batch norm is ``s x + t`` for each channel, with ``s = w / √(running_var + eps)`` and
    ``t = b - s · running_mean``. If it follows a Dense, Conv or ConvTranspose layer with linear activation, and nothing
    else reads the output of that layer, the factors go into the weights, ``s W``, the shifts into the bias,
    ``s b + t``, and the layer takes over the activation. The output is the same up to rounding. All other batch norms
    stay, for example those without running statistics, or of layers that links, further inputs or outputs name.

    Weights are multiplied in float64 and stored in the same type as before; convert to low-bit types afterwards, not
    before. `network` and `params` are not changed. The result can be trained further, without these batch norms.

    Examples
    --------
    >>> from volumetric import initialise
    >>> from volumetric.builders import cnn, fold_batchnorm
    >>> network = cnn((1, 8, 8), 10, channels=(4,), norm="batch")
    >>> folded, params = fold_batchnorm(network, initialise(network))
    >>> [spec.kind for spec in folded.layers.values()]
    ['conv2d', 'reshape', 'dense']
    """
    linked = {end for link in network.links for end in (link.source, link.target)}
    linked |= {*(port.coord for port in network.inputs.values()), *network.outputs.values()}
    layers, stores, reads = dict(network.layers), dict(params), network.reads
    for coord in [c for c in layers if c not in linked]:
        start = f"{coord}/"
        own = {key[len(start) :]: stores.pop(key) for key in list(stores) if key.startswith(start)}
        layers[coord], own = _fold_children(layers[coord], own, reads[coord])
        stores |= {start + name: store for name, store in own.items()}
    for first, norm in _pairs(network, linked):
        if first not in layers:  # already folded into another layer
            continue
        replacement = _fold_norm(
            layers[first],
            _stores_below(stores, first),
            layers[norm],
            _stores_below(stores, norm),
            network.shapes[first],
        )
        if replacement is None:
            continue
        spec, own = replacement
        stores = {k: s for k, s in stores.items() if not k.startswith((f"{first}/", f"{norm}/"))}
        stores |= {f"{first}/{name}": store for name, store in own.items()}
        layers[first] = spec
        del layers[norm]
        layers = {coord: _rename_residual(spec, str(norm), str(first)) for coord, spec in layers.items()}
    folded = dataclasses.replace(network, layers=layers)
    return folded, Params({key: stores[key] for key in folded.param_specs()})


def _pairs(network: Network, linked: set[Coord]) -> list[tuple[Coord, Coord]]:
    """Pairs of a layer and the layer after it, which alone reads its output."""
    sources = [source for w in network.wires for source in (*w.inputs, w.skip) if source is not None]
    read = [(source.coord, source.side) for source in sources]
    pairs: list[tuple[Coord, Coord]] = []
    for w in network.wires:
        before = w.inputs[0].coord
        if before is None or len(w.inputs) > 1 or {before, w.coord} & (linked | network.disabled):
            continue
        if read.count((before, "output")) == 1 and (w.coord, "input") not in read:
            pairs.append((before, w.coord))
    return pairs


def _stores_below(stores: Mapping[str, WeightStore], coord: Coord) -> Stores:
    start = f"{coord}/"
    return {key[len(start) :]: store for key, store in stores.items() if key.startswith(start)}


def _rename_residual(spec: LayerSpec, old: str, new: str) -> LayerSpec:
    """Make a Residual that adds the output of `old` add the output of `new`."""
    return Residual(source=new) if isinstance(spec, Residual) and spec.source == old else spec


def _fold_children(spec: LayerSpec, own: Stores, shape: Shape) -> tuple[LayerSpec, Stores]:
    """Fold batch norms inside a container; `shape` is the shape of its input."""
    if isinstance(spec, Parallel):
        branches: list[LayerSpec] = []
        rest = {name: store for name, store in own.items() if name.startswith("gate/")}
        for i, branch in enumerate(spec.branches):
            inner, stores = _fold_children(branch, _stores_of_child(own, i), shape)
            branches.append(inner)
            rest |= {f"{i}/{name}": store for name, store in stores.items()}
        return dataclasses.replace(spec, branches=tuple(branches)), rest
    if not isinstance(spec, Sequential):
        return spec, own
    shapes, children = [shape], list[tuple[LayerSpec, Stores]]()
    for i, child in enumerate(spec.layers):
        children.append(_fold_children(child, _stores_of_child(own, i), shapes[i]))
        shapes.append(child.output_shape(*(shapes[j] for j in spec.sources(i))))
    for i in reversed(range(len(children) - 1)):
        layers = tuple(layer for layer, _ in children)
        readers = [j for n in range(len(layers)) for j in Sequential(layers=layers).sources(n)]
        replacement = _fold_norm(*children[i], *children[i + 1], shapes[i + 1]) if readers.count(i + 1) == 1 else None
        if replacement is not None:
            children[i : i + 2] = [replacement]
            children = [(_shift_residual(layer, i + 1), stores) for layer, stores in children]
            del shapes[i + 1]
    names = {f"{i}/{name}": store for i, (_, stores) in enumerate(children) for name, store in stores.items()}
    return Sequential(layers=tuple(layer for layer, _ in children)), names


def _stores_of_child(own: Stores, index: int) -> Stores:
    start = f"{index}/"
    return {name[len(start) :]: store for name, store in own.items() if name.startswith(start)}


def _shift_residual(spec: LayerSpec, gone: int) -> LayerSpec:
    """Renumber the source of a Residual inside a Sequential after removal of the layer at index `gone`."""
    source = spec.source if isinstance(spec, Residual) else None
    if source is None or not source.startswith("#") or int(source[1:]) < gone:
        return spec
    return Residual(source=f"#{int(source[1:]) - 1}")


def _fold_norm(
    spec: LayerSpec, own: Stores, norm: LayerSpec, statistics: Stores, shape: Shape
) -> tuple[LayerSpec, Stores] | None:
    """Return `spec`, whose output has `shape`, with `norm` folded into it; None if this is impossible."""
    if not isinstance(norm, BatchNorm) or not norm.track_running_stats:
        return None
    if not isinstance(spec, Dense | Conv | ConvTranspose) or spec.activation != "linear":
        return None
    if isinstance(spec, Dense) and len(shape) != 2:
        return None  # its outputs are not channels
    scale = 1 / np.sqrt(_values(statistics, "running_var") + norm.eps)
    shift = np.zeros_like(scale)
    if norm.affine:
        scale, shift = scale * _values(statistics, "weight"), _values(statistics, "bias")
    before = _values(own, "bias") if spec.bias else 0.0
    weight = _values(own, "weight")
    if isinstance(spec, ConvTranspose):
        parts = (spec.groups, weight.shape[0] // spec.groups, *weight.shape[1:])
        factors = scale.reshape(spec.groups, 1, -1, *(1,) * (weight.ndim - 2))
        scaled = (weight.reshape(parts) * factors).reshape(weight.shape)
    else:
        scaled = weight * scale.reshape(-1, *(1,) * (weight.ndim - 1))
    stored = WeightStore.from_array(scaled.astype(np.float32))
    if own["weight"].scheme != stored.scheme:
        stored.morph(own["weight"].scheme)
    bias = scale * (before - _values(statistics, "running_mean")) + shift
    stores = {"weight": stored, "bias": WeightStore.from_array(bias.astype(np.float32))}
    return dataclasses.replace(spec, bias=True, activation=norm.activation), stores


def _values(stores: Stores, name: str) -> NDArray[np.float64]:
    return stores[name].values().astype(np.float64)
