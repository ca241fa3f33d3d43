"""Networks of the Go engine Loom as JSON, in both forms: structure only, and structure with packed weights.

Names, order and omission of fields are the engine's (`poly`, checked with version 0.80 of its Python binding), so each
side reads the files of the other. If data are flat in the engine and shaped here, reading inserts a Reshape before a
layer, inside a Sequential; writing removes it. Layers that the engine skips are disabled here, and slots without a
layer here are disabled there.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError, VolumetricError
from volumetric.base.hints import suggestion
from volumetric.dtypes import Packed
from volumetric.layers import LayerSpec, Parallel, Reshape, Residual, Sequential
from volumetric.layers.parallel import Combine
from volumetric.loaders.loom_blob import ALIASES, DTYPES, decode_blob
from volumetric.loaders.loom_fields import ACTIVATIONS, LoomLayer, read_layer
from volumetric.loaders.loom_weights import split_weights, weight_count
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore

TYPES: Final = (
    *("Dense", "MultiHeadAttention", "SwiGLU", "RMSNorm", "CNN1", "CNN2", "CNN3", "RNN", "LSTM", "LayerNorm"),
    *("ConvTransposed1D", "ConvTransposed2D", "ConvTransposed3D", "Embedding", "KMeans", "Softmax", "Parallel"),
    *("Sequential", "Residual"),
)
_SPELLINGS: Final = {name.upper(): name for name in TYPES} | dict.fromkeys(("MHA", "ATTENTION"), "MultiHeadAttention")
_ACTIVATIONS: Final = {name.upper(): name for name in ACTIVATIONS}
ORDER: Final = (
    *("z", "y", "x", "l", "type", "activation", "dtype"),
    *(f"{end}_{side}" for end in ("input", "output") for side in ("height", "width", "depth")),
    *("input_channels", "filters", "kernel_size", "stride", "padding", "output_padding"),
    *("num_heads", "num_kv_heads", "head_dim", "query_dim", "d_model", "seq_length", "rope_freq_base"),
    *("vocab_size", "embedding_dim", "num_clusters", "kmeans_temperature", "output_mode"),
    *("softmax_type", "temperature", "softmax_rows", "softmax_cols", "entmax_alpha", "gumbel_noise"),
    *("weights", "native", "scale", "parallel_branches", "combine_mode", "sequential_layers"),
    *("use_tiling", "tile_size", "is_disabled"),
)
"""Fields of a layer, in the order in which the engine writes them."""
_LISTS: Final = ("parallel_branches", "sequential_layers")
_SIZES: Final = ("input_height", "output_height", "d_model", "vocab_size", "filters", "num_clusters", *_LISTS)
_TEXT: Final = ("type", "activation", "dtype", "output_mode", "softmax_type", "weights", "combine_mode")
_REALS: Final = ("rope_freq_base", "kmeans_temperature", "temperature", "entmax_alpha", "scale")
_FLAGS: Final = ("native", "gumbel_noise", "use_tiling", "is_disabled")
_COMBINES: Final[dict[str, Combine]] = {
    "": "concat",
    "concat": "concat",
    "grid_scatter": "concat",  # equal in the engine
    "add": "add",
    "avg": "avg",
}
MAX_DEPTH: Final = 64
LARGEST: Final = 2**31


def is_loom(head: object) -> bool:
    """Whether a JSON value looks like a network of the engine."""
    return isinstance(head, dict) and isinstance(head.get("layers"), list) and "depth" in head and "format" not in head


@dataclass(slots=True)
class _NetworkParts:
    """A network under construction."""

    layers: dict[Coord, LayerSpec] = field(default_factory=dict)
    disabled: set[Coord] = field(default_factory=set)
    stores: dict[str, Packed] = field(default_factory=dict)
    begin: Shape | None = None
    """Shape of an input row of the network, once a layer determines it."""
    now: Shape | None = None
    """Shape of a row at this point, once it is known."""


def read_loom(text: str | bytes, where: str = "network") -> tuple[Network, Params | None]:
    """Read a network, and its weights if the file has them for all layers with parameters.

    Raises
    ------
    CheckpointError
        The text is not a network of the engine, or its weights do not fit.
    SpecError, ShapeError
        A field is unknown or invalid.
    UnsupportedError
        A layer needs data that the file lacks, such as the mask of a masked softmax.
    """
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is not JSON: {str(error)[:200]}") from None
    if not is_loom(head):
        raise CheckpointError(
            f"{where} is not a network of the Go engine", hint=("expected the keys depth, rows, cols and layers")
        )
    sides = [head.get(name, 1) for name in ("depth", "rows", "cols", "layers_per_cell")]
    grid = Grid(*sides)
    built = _NetworkParts()
    placed = _places(head["layers"], grid, where)
    for coord, fields in sorted(placed.items()):
        try:
            _add_grid_layer(built, coord, fields)
        except VolumetricError as error:
            raise type(error)(f"{where}: {fields.get('type', 'layer')} at {coord}: {error}", hint=error.hint) from None
    first = built.begin
    if first is None:
        raise SpecError(f"{where}: no layer determines the input shape")
    network = Network(
        grid=grid,
        layers=built.layers,
        disabled=frozenset(built.disabled),
        input_shape=first,
        input_dtype="int32" if first == () else "float32",
    )
    specs = network.param_specs()
    missing = [key for key in specs if key not in built.stores and not key.endswith("bias")]
    if missing and built.stores:
        raise CheckpointError(f"{where}: some layers have weights, but {missing[0]} has none")
    if missing or not specs:
        return network, None if missing else Params({})
    tensors = {key: _tensor_of(built, key, spec.shape) for key, spec in specs.items()}
    return network, Params({key: WeightStore.from_packed(packed) for key, packed in tensors.items()})


def _tensor_of(built: _NetworkParts, key: str, shape: Shape) -> Packed:
    """Return a tensor; a bias that the engine lacks is zero."""
    return built.stores.get(key) or Packed.from_array(np.zeros(shape, np.float32))


def _places(layers: list[Any], grid: Grid, where: str) -> dict[Coord, Mapping[str, Any]]:
    """Place the layers at their coordinates; a list without coordinates fills the grid in reading order."""
    checked = [_check_layer_fields(fields, f"{where}: layers[{i}]") for i, fields in enumerate(layers)]
    has_coordinates = any(name in fields for fields in checked for name in "zyxl")
    if not has_coordinates and len(checked) > len(grid):
        raise SpecError(f"{where}: {len(checked)} layers do not fit a grid of {len(grid)} slots")
    placed: dict[Coord, Mapping[str, Any]] = {}
    for i, fields in enumerate(checked):
        coord = Coord(*(fields.get(name, 0) for name in "zyxl")) if has_coordinates else grid.coord(i)
        grid.index(coord)
        if coord in placed:
            raise SpecError(f"{where}: two layers are at {coord}")
        placed[coord] = fields
    return placed


def _check_layer_fields(fields: object, where: str) -> Mapping[str, Any]:
    """Return a layer's fields; raise `SpecError` for one that is unknown or ill-typed."""
    if not isinstance(fields, dict):
        raise SpecError(f"{where}: expected an object")
    for name, value in fields.items():
        if name not in ORDER:
            raise SpecError(f"{where}: unknown field {name!r}", hint=suggestion(name, ORDER, "") or None)
        if not _is_good(name, value):
            raise SpecError(f"{where}: {name} is {str(value)[:60]!r}")
    return fields


def _is_good(name: str, value: object) -> bool:
    for names, kind in ((_TEXT, str), (_FLAGS, bool), (_LISTS, list)):
        if name in names:
            return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, (int, float) if name in _REALS else int):
        return False
    return 0 <= value < LARGEST


def _parse_spelling(spellings: Mapping[str, str], text: str, what: str) -> str:
    if text.upper() not in spellings:
        close = difflib.get_close_matches(text.upper(), list(spellings), 1)
        hint = f"did you mean {spellings[close[0]]!r}?" if close else None
        raise SpecError(f"unknown {what} {text!r}", hint=hint)
    return spellings[text.upper()]


def _add_grid_layer(built: _NetworkParts, coord: Coord, fields: Mapping[str, Any]) -> None:
    """Add one layer of the grid."""
    off = fields.get("is_disabled", False)
    if off and not any(name in fields for name in _SIZES):
        return  # an unused slot
    layer, weights = _layer(fields, 0)
    if layer is None:
        return
    identity = off or isinstance(layer.spec, Residual)  # in the engine a residual of the grid adds nothing
    spec, inner = (layer.spec, "") if identity else _reshape_to_fit(layer, built.now, fields.get("seq_length", 1))
    if not identity:
        if built.now is None:
            built.now = layer.reads
        if built.begin is None:
            built.begin = layer.reads
        if built.now is not None:
            built.now = spec.output_shape((1, *built.now))[1:]
    else:
        built.disabled.add(coord)
    built.layers[coord] = spec
    built.stores |= {f"{coord}/{inner}{name}": packed for name, packed in weights.items()}


def _reshape_to_fit(layer: LoomLayer, now: Shape | None, length: int) -> tuple[LayerSpec, str]:
    """Return the layer, after a Reshape if `now` is not the shape of its rows; and the path of its parameters."""
    if now is None or layer.reads is None or now == layer.reads or layer.reads == ():
        return layer.spec, ""
    size = math.prod(layer.reads)
    shape = layer.reads
    if math.prod(now) == size * length and length > 1:
        shape = (length, *layer.reads)
    if math.prod(now) != math.prod(shape) or (len(now) == 1 and len(shape) == 1):
        return layer.spec, ""  # the network reports the mismatch
    return Sequential(layers=(Reshape(shape=shape), layer.spec)), "1/"


def _layer(fields: Mapping[str, Any], depth: int) -> tuple[LoomLayer | None, dict[str, Packed]]:
    """Return a layer and its tensors by name; None for an empty container, which does nothing."""
    if depth > MAX_DEPTH:
        raise SpecError(f"layers are nested deeper than {MAX_DEPTH}")
    kind = _parse_spelling(_SPELLINGS, fields.get("type", "Dense"), "type")
    if kind in ("Parallel", "Sequential"):
        return _container(kind, fields, depth)
    if kind == "Residual":
        return LoomLayer(spec=Residual(), reads=None), {}
    activation = ACTIVATIONS[_parse_spelling(_ACTIVATIONS, fields.get("activation", "Linear"), "activation")]
    layer = read_layer(kind, fields, activation)
    return layer, _tensors(layer.spec, fields)


def _tensors(spec: LayerSpec, fields: Mapping[str, Any]) -> dict[str, Packed]:
    count = weight_count(spec)
    if "weights" not in fields or not count:
        return {}
    name = _parse_spelling({k.upper(): k for k in DTYPES} | {k.upper(): v for k, v in ALIASES.items()},
                  fields.get("dtype", "float32"), "dtype")  # fmt: skip
    dtype = name if fields.get("native", False) else "float32"
    blob = decode_blob(fields["weights"], dtype, fields.get("scale", 1.0), count, "weights")
    packable = {p.name: p.packable for p in spec.params()}
    parts = split_weights(spec, blob.codes)
    return {name: blob.store(codes, packable=packable[name]) for name, codes in parts.items()}


def _container(kind: str, fields: Mapping[str, Any], depth: int) -> tuple[LoomLayer | None, dict[str, Packed]]:
    """Return a container's layer, or None if it is empty, and its tensors by parameter."""
    children = [
        _check_layer_fields(child, f"{kind}[{i}]")
        for i, child in enumerate(fields.get(_LISTS[kind == "Sequential"], []))
    ]
    tensors: dict[str, Packed] = {}
    specs: list[LayerSpec] = []
    reads: Shape | None = None
    now: Shape | None = None
    for i, child in enumerate(children):
        layer, inside = _layer(child, depth + 1)
        if layer is None:
            raise UnsupportedError(f"an empty container inside a {kind} is not supported")
        reads = layer.reads if reads is None else reads
        spec, path = _reshape_to_fit(layer, now, 1) if kind == "Sequential" else (layer.spec, "")
        if kind == "Sequential" and not isinstance(spec, Residual):
            start = layer.reads if now is None else now
            now = None if start is None else spec.output_shape((1, *start))[1:]
        specs.append(spec)
        tensors |= {f"{i}/{path}{name}": packed for name, packed in inside.items()}
    if not specs:
        return None, {}
    if kind == "Sequential":
        return LoomLayer(spec=Sequential(layers=tuple(specs)), reads=reads), tensors
    mode = fields.get("combine_mode", "")
    if mode not in _COMBINES:
        raise UnsupportedError(f"combine_mode {mode!r}: the file has no gate; {', '.join(_COMBINES)} need none")
    return LoomLayer(spec=Parallel(branches=tuple(specs), combine=_COMBINES[mode]), reads=reads), tensors
