"""Which scheme each parameter takes when a model is opened, or written, in another numeric type."""

from __future__ import annotations

from typing import Final

from volumetric._typing import Shape
from volumetric.dtypes import DType, Packed, Scheme, recode
from volumetric.grid import Coord
from volumetric.layers import Dense, Embedding, PositionEmbedding
from volumetric.layers.base import ParamSpec
from volumetric.network import Network

EDGE: Final = Scheme.parse("int8:g32")
"""Embedding and head never go below 8 bits, as in llama.cpp's 4-bit files."""


FALLBACKS: Final = {
    **dict.fromkeys(("q2_k", "q3_k", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("tq1_0", "tq2_0"), "int4:g32"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
}
"""Block format → what rows take that do not fill its blocks; int8:g32 for all others."""


def target_schemes(network: Network, dtype: str | DType | Scheme | None) -> dict[str, Scheme | None]:
    """Scheme of every parameter under a policy; None leaves it as it is stored.

    Gains and biases stay as they are. Below 8 bits, embeddings and the head take int8:g32. Rows that do not fill the
    blocks of a block format take a finer type that they fill, as in llama.cpp (`FALLBACKS`).

    Parameters
    ----------
    dtype : what was asked for, ``"int4:g32"`` or ``"bf16"``; None keeps everything as stored

    Raises
    ------
    DTypeError
        `dtype` names no scheme.
    """
    specs = network.param_specs()
    if dtype is None:
        return dict.fromkeys(specs)
    scheme = Scheme.parse(dtype)
    edges = edge_keys(network) if scheme.bits_per_weight((1, 4096)) < EDGE.dtype.bits else frozenset()
    return {key: _target(spec, scheme, edge=key in edges) for key, spec in specs.items()}


def _target(spec: ParamSpec, scheme: Scheme, *, edge: bool) -> Scheme | None:
    if not spec.packable:
        return None
    return EDGE if edge else filled(scheme, spec.shape)


def filled(scheme: Scheme, shape: Shape) -> Scheme:
    """Return `scheme`, or what takes its place where rows of a tensor do not fill its blocks."""
    while scheme.blocks is not None and shape and shape[-1] % scheme.blocks.size:
        scheme = Scheme.parse(FALLBACKS.get(scheme.blocks.name, "int8:g32"))
    return scheme


def edge_keys(network: Network) -> frozenset[str]:
    """Parameters of the embeddings, and of the head: the last layer that has any, if it is dense."""
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
    """Return a tensor in another scheme; itself if it has that scheme already, or None is asked for."""
    if scheme is None or packed.scheme == scheme:
        return packed
    return recode(packed, scheme)
