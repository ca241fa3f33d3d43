"""Writing networks as the Go engine Loom's JSON; reading is in `loom_json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.dtypes import decode
from volumetric.layers import Dense, LayerSpec, Parallel, Reshape, Residual, Sequential, SwiGLU
from volumetric.layers.containers import inner_source
from volumetric.layers.layer_spec import params_below
from volumetric.loaders.loom_blob import NAMES, encode_blob
from volumetric.loaders.loom_fields import write_layer
from volumetric.loaders.loom_json import ORDER
from volumetric.loaders.loom_weights import join_weights, weight_count
from volumetric.network import Network
from volumetric.network.weight_store import WeightStore
from volumetric.network.wiring import Source

_COMBINES: Final = ("concat", "add", "avg")
Stores = Mapping[str, Any]
"""Name below a layer → `WeightStore`."""


def loom_text(network: Network, params: Mapping[str, WeightStore] | None = None, *, seq_length: int = 1) -> str:
    """Return the JSON text of a network.

    Every weight keeps its value: a layer is written in its numeric type if the engine's single vector with one scale
    can store the values, else in float32.

    Parameters
    ----------
    params : weights; None writes only the structure
    seq_length : sequence length in the fields of attention and recurrent layers

    Raises
    ------
    UnsupportedError
        The engine lacks a layer or link; the message has its coordinate.
    """
    if network.inputs or network.outputs:
        raise UnsupportedError("the Go engine's file can store only one input and one output", hint="use save_native")
    if network.links:
        raise UnsupportedError("the Go engine's file cannot store links between layers", hint="copy shared weights")
    slots: list[dict[str, Any]] = []
    now: Shape = network.input_shape
    writer = _LoomWriter(seq_length, with_weights=params is not None)
    wires = {w.coord: w for w in network.wires}
    previous: Source = Source()
    for coord in network.grid:
        place = {"z": coord.z, "y": coord.y, "x": coord.x, "l": coord.slot}
        if coord not in wires:
            slots.append(_order_fields({**place, **_NOTHING}))
            continue
        w, spec = wires[coord], network.layers[coord]
        if w.inputs != (previous,):
            raise UnsupportedError(f"{spec.kind} at {coord} reads layers other than the one before it")
        previous = Source(coord)
        stores = {} if params is None else {p.name: params[f"{coord}/{p.name}"] for p in spec.params()}
        try:
            fields = writer.grid_layer(spec, stores, now, identity=w.identity)
        except VolumetricError as error:
            raise type(error)(f"{spec.kind} at {coord}: {error}", hint=error.hint) from None
        now = network.shapes[coord][1:]
        slots.append(_order_fields({**place, **fields}))
    depth, rows, cols, count = network.grid.sides
    head = {"id": "network", "depth": depth, "rows": rows, "cols": cols, "layers_per_cell": count, "layers": slots}
    return json.dumps(head, indent=2, ensure_ascii=False)


def save_loom(
    path: str | Path, network: Network, params: Mapping[str, WeightStore] | None = None, *, seq_length: int = 1
) -> None:
    """Write `loom_text` to a file atomically. Also raises `CheckpointError` if that fails."""
    if Path(path).is_dir():
        raise CheckpointError(f"{path} is a directory, expected a file", hint="give a .json file")
    write_atomic(path, loom_text(network, params, seq_length=seq_length).encode())


_NOTHING: Final = {
    "type": "Dense",
    "activation": "Linear",
    "dtype": "float32",
    "seq_length": 1,
    "softmax_type": "Standard",
    "is_disabled": True,
}
"""A slot without a layer in the engine: a layer that is skipped."""


class _LoomWriter:
    def __init__(self, seq_length: int, *, with_weights: bool) -> None:
        self._length = seq_length
        self._with_weights = with_weights

    def grid_layer(self, spec: LayerSpec, stores: Stores, row: Shape, *, identity: bool) -> dict[str, Any]:
        """Return the fields of a layer of the grid."""
        if isinstance(spec, Residual):
            if not identity:
                raise UnsupportedError("the Go engine ignores a residual of the grid", hint="put it into a sequential")
            return self.layer(spec, stores, row)
        if isinstance(spec, Reshape):
            return dict(_NOTHING)  # data are flat in the engine
        fields = self.layer(spec, stores, row)
        return {**fields, "is_disabled": True} if identity else fields

    def layer(self, spec: LayerSpec, stores: Stores, row: Shape) -> dict[str, Any]:
        """Return the fields of one layer that reads rows of shape `row`."""
        if self._with_weights:
            spec, stores = split_bias(spec, stores, row)
        base = {"activation": "Linear", "dtype": "float32", "seq_length": 1, "softmax_type": "Standard"}
        if isinstance(spec, Residual):
            width = {"input_height": row[0], "output_height": row[0]} if len(row) == 1 else {}
            return {**base, "type": "Residual", **width}
        if isinstance(spec, Sequential):
            return self._sequential(spec, stores, row, base)
        if isinstance(spec, Parallel):
            if spec.combine not in _COMBINES:
                raise UnsupportedError(f"parallel: the Go engine's file cannot store combine {spec.combine!r}")
            parts = [self.layer(b, params_below(stores, str(i)), row) for i, b in enumerate(spec.branches)]
            return {**base, "type": "Parallel", "parallel_branches": _nest_layers(parts), "combine_mode": spec.combine}
        output_row = spec.output_shape((1, *row))[1:]
        kind, activation, fields = write_layer(spec, row, output_row)
        if kind in ("MultiHeadAttention", "RNN", "LSTM"):
            base["seq_length"] = self._length  # pyright: ignore[reportArgumentType]  (a number among texts)
        weights = self._weights(spec, stores) if self._with_weights and weight_count(spec) else {}
        return {**base, "type": kind, **fields, "activation": activation, **weights}

    def _sequential(self, spec: Sequential, stores: Stores, row: Shape, base: dict[str, Any]) -> dict[str, Any]:
        layers = spec.layers
        if len(layers) == 2 and isinstance(layers[0], Reshape):
            inside = layers[0].output_shape((1, *row))[1:]
            return self.layer(layers[1], params_below(stores, "1"), inside)
        parts: list[dict[str, Any]] = []
        for i, child in enumerate(layers):
            if isinstance(child, Residual) and inner_source(child.source, i) != i - 1:
                raise UnsupportedError("a residual of the Go engine can only add the input of the layer before it")
            if not isinstance(child, Reshape):
                parts.append(self.layer(child, params_below(stores, str(i)), row))
            row = row if isinstance(child, Residual) else child.output_shape((1, *row))[1:]
        return {**base, "type": "Sequential", "sequential_layers": _nest_layers(parts)}

    def _weights(self, spec: LayerSpec, stores: Mapping[str, WeightStore]) -> dict[str, Any]:
        """Return dtype, weights and scale."""
        if "bias" in stores and _lacks_bias(spec) and np.any(stores["bias"].values()):
            raise UnsupportedError(
                "the Go engine's convolutions, and its dense layers of several rows, have no bias",
                hint="use bias=False",
            )
        wide = any(store.scheme.dtype.name == "float64" for store in stores.values())
        values = {name: decode(store.packed(), np.float64 if wide else np.float32) for name, store in stores.items()}
        flat: Array = join_weights(spec, values)
        packable = [stores[p.name] for p in spec.params() if p.packable]
        dtype, scale = _common(packable)
        for name, factor in ((dtype, scale), ("float32", np.float32(1))):
            text = None if name is None or factor is None else encode_blob(flat, name, factor)
            if text is not None and factor is not None:
                return {"dtype": name, "weights": text, "native": True, "scale": _number(float(factor))}
        raise UnsupportedError("a weight does not fit float32")


def _lacks_bias(spec: LayerSpec) -> bool:
    """Whether the engine's layer of this kind has no bias."""
    return spec.kind == "dense" or spec.kind.startswith("conv")


def _common(stores: list[WeightStore]) -> tuple[str | None, np.float32 | None]:
    """Return the engine's name of the numeric type of all tensors, and their common scale."""
    kinds = {store.scheme.dtype.name for store in stores}
    if len(kinds) != 1:
        return "float32", np.float32(1)
    name = NAMES[kinds.pop()]
    packed = [store.packed() for store in stores]
    scales = [p.scales.astype(np.float32).ravel() for p in packed if p.scales is not None]
    if not scales:
        return name, np.float32(1)
    if any(p.offsets is not None and p.offsets.any() for p in packed):
        return None, None
    every = np.unique(np.concatenate(scales))
    return (name, np.float32(every[0])) if len(every) == 1 and every[0] > 0 else (None, None)


def _nest_layers(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_order_fields({"z": 0, "y": 0, "x": 0, "l": 0, **part}) for part in parts]


def _order_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields in the engine's order; zeros are left out, except for coordinates."""
    ordered = {name: fields[name] for name in ORDER if name in fields}
    return {
        name: _number(value) if isinstance(value, float) else value
        for name, value in ordered.items()
        if value not in (0, "", False) or name in "zyxl"
    }


def _number(value: float) -> int | float:
    """Return a float32 as Go writes it: its shortest decimal form, whole numbers without a point."""
    short = float(str(np.float32(value)))
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def split_bias(
    spec: LayerSpec, stores: Mapping[str, WeightStore], row: Shape
) -> tuple[LayerSpec, Mapping[str, WeightStore]]:
    """Return an equivalent layer without a bias that the engine lacks, and its parameters.

    Parameters
    ----------
    row : shape of a row that it reads

    Returns
    -------
    Layer and parameters; unchanged except for dense layers that read one vector and have a bias
    """
    if not isinstance(spec, Dense) or len(row) != 1 or not spec.bias or not np.any(stores["bias"].values()):
        return spec, stores
    count = spec.out_features
    constant = SwiGLU(in_features=count, hidden_features=1, bias=True)
    values = {param.name: np.zeros(param.shape, np.float32) for param in constant.params()}
    values["down.bias"] = stores["bias"].values()
    layers = [dataclasses.replace(spec, bias=False, activation="linear"), constant, Residual()]
    named = {"0/weight": stores["weight"]}
    named |= {f"1/{name}": WeightStore.from_array(array) for name, array in values.items()}
    if spec.activation != "linear":
        layers.append(Dense(in_features=count, out_features=count, bias=False, activation=spec.activation))
        named["3/weight"] = WeightStore.from_array(np.eye(count, dtype=np.float32))
    return Sequential(layers=tuple(layers)), named
