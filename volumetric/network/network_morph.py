"""Converts the weights of a network to other numeric types in place, and reports the error of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from volumetric.base.errors import CheckpointError, DTypeError, SpecError
from volumetric.base.text_table import TextTable
from volumetric.dtypes import DType, Packed, Scheme, parse_dtype
from volumetric.network.grid import Coord, CoordLike
from volumetric.network.weight_difference import MorphReport, WeightDifference
from volumetric.network.weight_store import WeightStore

if TYPE_CHECKING:
    from volumetric.network.network import Network

Form: TypeAlias = "str | DType | Scheme"
Targets: TypeAlias = "Form | Mapping[Any, Form]"
"""One numeric type for all layers, or coordinate → type: the other layers keep theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMorph:
    """The conversion of the weights of one layer.

    Attributes
    ----------
    coord, kind : the layer
    scheme : the new scheme of its weights
    keys : converted tensors; gains and biases are not converted and not counted
    elements : number of elements of these tensors
    bits_per_weight : stored bits per element, including scales, offsets and padding
    error : error over all tensors of the layer
    """

    coord: Coord
    kind: str
    scheme: Scheme
    keys: tuple[str, ...]
    elements: int
    bits_per_weight: float
    error: MorphReport


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMorph:
    """The result of a conversion: figures for each layer, in reading order, and in total.

    Attributes
    ----------
    layers : one entry for each layer with converted weights; a shared tensor counts for the first layer that uses it
    elements, bits_per_weight, error : as in `LayerMorph`, over all converted tensors
    """

    layers: tuple[LayerMorph, ...]
    elements: int
    bits_per_weight: float
    error: MorphReport

    def __str__(self) -> str:
        """Return a table with a line for each layer."""
        lines = [f"{'layer':24} {'scheme':18} {'bits':>6} {'NMSE':>10} {'cosine':>9} {'max abs':>10}"]
        lines += [_line(f"{x.coord} {x.kind}", str(x.scheme), x.bits_per_weight, x.error) for x in self.layers]
        return "\n".join([*lines, _line("all", "", self.bits_per_weight, self.error)])

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        columns = ("layer", "scheme", "bits", "NMSE", "cosine", "max abs")
        parts = [(f"{x.coord} {x.kind}", str(x.scheme), x.bits_per_weight, x.error) for x in self.layers]
        parts.append(("all", "", self.bits_per_weight, self.error))
        rows = tuple(
            (name, scheme, f"{bits:.3f}", f"{e.nmse:.3e}", f"{e.cosine:.6f}", f"{e.max_abs:.3e}")
            for name, scheme, bits, e in parts
        )
        return TextTable(columns=columns, rows=rows, right=frozenset(columns[2:]))._repr_html_()


def _line(name: str, scheme: str, bits: float, error: MorphReport) -> str:
    figures = f"{bits:6.3f} {error.nmse:10.3e} {error.cosine:9.6f} {error.max_abs:10.3e}"
    return f"{name:24} {scheme:18} {figures}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConvertedTensor:
    store: WeightStore
    packed: Packed
    difference: WeightDifference


def morph(
    network: Network,
    params: Mapping[str, WeightStore],
    dtype: Targets,
    scheme: str | None = None,
    *,
    keep_masters: bool = True,
) -> NetworkMorph:
    """See `Network.morph`."""
    schemes = _schemes_by_coord(network, dtype, scheme)
    missing = [key for keys in schemes.values() for key in keys if key not in params]
    if missing:
        raise CheckpointError(
            f"parameters do not fit the network: missing {', '.join(missing[:5])}",
            hint="initialise(network) returns new ones; load(…).params are those of a model",
        )
    converted: dict[str, _ConvertedTensor] = {}
    layers: list[LayerMorph] = []
    for coord, keys in schemes.items():
        converted |= {key: _convert(key, params[key], to) for key, to in keys.items()}
        layers.append(_layer(network, coord, {key: converted[key] for key in keys}))
    for one in converted.values():  # last, so that an error above changes nothing
        if keep_masters:
            one.store.master()
        else:
            one.store.drop_master()
        one.store.adopt(one.packed)
    return NetworkMorph(layers=tuple(layers), **_figures(list(converted.values())))


def _schemes_by_coord(network: Network, dtype: Targets, scheme: str | None) -> dict[Coord, dict[str, Scheme]]:
    """Return coordinate → key → scheme of all tensors to convert; each tensor appears once."""
    if isinstance(dtype, Mapping):
        forms = {_coordinate(network, at): _scheme(form, scheme) for at, form in dtype.items()}
    else:
        forms = dict.fromkeys(network.layers, _scheme(dtype, scheme))
    schemes: dict[Coord, dict[str, Scheme]] = {}
    owner: dict[str, tuple[Coord, Scheme]] = {}
    for coord, to in sorted(forms.items()):
        keys = [network.resolve(f"{coord}/{p.name}") for p in network.layers[coord].params() if p.packable]
        if not keys and isinstance(dtype, Mapping):
            raise SpecError(f"{network.layers[coord].kind} at {coord} has no weights to convert")
        for key in keys:
            first, earlier = owner.setdefault(key, (coord, to))
            if earlier != to:
                raise SpecError(f"{key} is shared by {first} and {coord}, and cannot be both {earlier} and {to}")
            if first == coord:
                schemes.setdefault(coord, {})[key] = to
    return schemes


def _coordinate(network: Network, at: CoordLike) -> Coord:
    coord = Coord.of(at)
    network.grid.index(coord)
    if coord not in network.layers:
        raise SpecError(f"there is no layer at {coord}", hint=f"layers are at {_some_coords(network)}")
    return coord


def _some_coords(network: Network) -> str:
    names = [str(coord) for coord in network.layers]
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def _scheme(form: Form, scheme: str | None) -> Scheme:
    """Return the scheme of a type; `scheme` has its modifiers, such as ``"g64"`` or ``"row:f32"``."""
    if scheme is None:
        return Scheme.parse(form)
    if isinstance(form, Scheme):
        raise DTypeError(
            f"{form} is already a scheme, got also scheme={scheme!r}", hint="pass a numeric type, or omit scheme"
        )
    return Scheme.parse(f"{parse_dtype(form)}:{scheme}")


def _convert(key: str, store: WeightStore, to: Scheme) -> _ConvertedTensor:
    try:
        packed, difference = store.convert(to)
    except DTypeError as error:
        raise DTypeError(f"{key}: {error}", hint=error.hint) from None
    return _ConvertedTensor(store=store, packed=packed, difference=difference)


def _layer(network: Network, coord: Coord, converted: Mapping[str, _ConvertedTensor]) -> LayerMorph:
    one = next(iter(converted.values()))
    return LayerMorph(
        coord=coord,
        kind=network.layers[coord].kind,
        scheme=one.packed.scheme,
        keys=tuple(converted),
        **_figures(list(converted.values())),
    )


def _figures(converted: list[_ConvertedTensor]) -> dict[str, Any]:
    elements = sum(one.difference.elements for one in converted)
    bits = sum(8 * one.packed.nbytes for one in converted)
    error = reduce(WeightDifference.__add__, (one.difference for one in converted), WeightDifference())
    return {"elements": elements, "bits_per_weight": bits / elements if elements else 0.0, "error": error.report()}
