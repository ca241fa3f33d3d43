"""Scheme of each parameter when a model is opened, or written, in another numeric type."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.dtypes import DType, Packed, Scheme, recode
from volumetric.layers import Dense, Embedding, PositionEmbedding
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore

EDGE: Final = Scheme.parse("int8:g32")
"""Embedding and head have at least 8 bits, as in llama.cpp's 4-bit files."""

_PLAIN_BITS = 16
"""Types with fewer bits are not used for routers of mixtures."""

FALLBACKS: Final = {
    **dict.fromkeys(("q2_k", "q3_k", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("tq1_0", "tq2_0"), "int4:g32"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
}
"""Block format → scheme of rows that do not fill its blocks; int8:g32 for all others."""


def target_schemes(
    network: Network, dtype: str | DType | Scheme | None, named: Mapping[str, str] | None = None
) -> dict[str, Scheme | None]:
    """Scheme of every parameter under a policy; None keeps the stored scheme.

    Gains and biases are not converted, nor are routers of mixtures to types below 16 bits. For types below 8 bits,
    embeddings and the head use int8:g32. Rows that do not fill the blocks of a block format use a finer type that they
    fill, as in llama.cpp (`FALLBACKS`).

    Parameters
    ----------
    dtype : requested type, ``"int4:g32"`` or ``"bf16"``; None keeps all stored schemes
    named : shell pattern of keys → scheme of the matrices that it matches, regardless of the policy; the first match
        counts

    Raises
    ------
    DTypeError
        `dtype` is not a scheme.
    SpecError
        A pattern matches no matrix.
    """
    specs = network.param_specs()
    targets: dict[str, Scheme | None] = dict.fromkeys(specs)
    if dtype is not None:
        scheme = Scheme.parse(dtype)
        coarse = scheme.bits_per_weight((1, 4096))
        edges = edge_keys(network) if coarse < EDGE.dtype.bits else frozenset()
        for key, spec in specs.items():
            if spec.packable and not (spec.delicate and coarse < _PLAIN_BITS):
                targets[key] = EDGE if key in edges else scheme_that_fits(scheme, spec.shape)
    for pattern, text in reversed(list((named or {}).items())):
        matched = [key for key, spec in specs.items() if spec.packable and fnmatchcase(key, pattern)]
        if not matched:
            raise SpecError(
                f"{pattern!r} matches no matrix",
                hint=("volumetric inspect --tensors lists them, such as 1.0.0.1/q.weight"),
            )
        targets |= {key: scheme_that_fits(Scheme.parse(text), specs[key].shape) for key in matched}
    return targets


def scheme_that_fits(scheme: Scheme, shape: Shape) -> Scheme:
    """Return `scheme`, or its fallback if rows of a tensor do not fill its blocks."""
    while scheme.blocks is not None and shape and shape[-1] % scheme.blocks.size:
        scheme = Scheme.parse(FALLBACKS.get(scheme.blocks.name, "int8:g32"))
    return scheme


def edge_keys(network: Network) -> frozenset[str]:
    """Parameters of the embeddings and of the head (the last layer with parameters, if it is dense)."""
    keys: set[str] = set()
    last: Coord | None = None
    for coord, spec in network.layers.items():
        if isinstance(spec, Embedding | PositionEmbedding):
            keys |= {network.resolve(f"{coord}/{param.name}") for param in spec.params()}
        last = coord if spec.params() else last
    if last is not None and isinstance(network.layers[last], Dense):
        keys.add(network.resolve(f"{last}/weight"))
    return frozenset(keys)


def convert(packed: Packed, scheme: Scheme | None) -> Packed:
    """Return a tensor in another scheme; unchanged if it already has that scheme, or `scheme` is None."""
    if scheme is None or packed.scheme == scheme:
        return packed
    return recode(packed, scheme)


def convert_params(params: Mapping[str, WeightStore], targets: Mapping[str, Scheme | None]) -> Params:
    """Return parameters in other schemes, converted on reading; None, or no target, keeps a parameter unchanged."""
    stores: dict[str, WeightStore] = {}
    for key, store in params.items():
        target = targets.get(key)
        if target is None or target == store.scheme:
            stores[key] = store
        else:
            stores[key] = store.transformed_by(target, lambda packed, target=target: convert(packed, target))
    return Params(stores)
