"""bitsandbytes: 4-bit codes into a table (NF4, FP4; Dettmers et al. 2023, arXiv 2305.14314), and int8 by rows.

4 bits: ``weight`` uint8, two codes to a byte, high half first, over the flattened matrix; ``weight.quant_map`` has the
16 values; ``weight.absmax`` the factor of each block of 64, or, doubly quantised, codes into
``weight.nested_quant_map`` with factors ``weight.nested_absmax`` and an offset;
``weight.quant_state.bitsandbytes__nf4`` is a JSON text with shape, block size and type. None of our schemes has a
table: these matrices are decoded to the type to which bitsandbytes decodes them, and a warning is logged.

8 bits: ``weight`` int8 ``[out, in]`` and ``SCB`` ``[out]``, value = code · SCB / 127: kept packed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.quantised_source import (
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    elements,
    expect_shape,
    log_decoded,
    pack,
    scheme_of,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_STATES = (".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4")
_MAX_STATE = 10_000
_DTYPES = ("float16", "bfloat16", "float32")


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of a bitsandbytes checkpoint; errors as for `quantised.opened`."""
    weights = {f"{stem}.weight": _table(source, stem, ending) for ending in _STATES for stem in stems(source, ending)}
    types = ", ".join(sorted({str(matrix.scheme) for matrix in weights.values()}))
    log_decoded("bitsandbytes", weights, types, "their 4 bits are indices into a table")
    rows = {f"{stem}.weight": _rows(source, stem) for stem in stems(source, ".SCB")}
    ignored = tuple(name for name in source.entries if name.endswith(".weight_format"))
    return QuantisedWeights(matrices=weights | rows, ignored=ignored)


def _rows(source: TensorSource, stem: str) -> QuantisedMatrix:
    name, scale = f"{stem}.weight", f"{stem}.SCB"
    out, k = array_of(source, name, types=("I8",), axes=2).shape
    peaks = array_of(source, scale, types=("F32",))
    expect_shape(scale, peaks.shape, (out,))
    scheme = scheme_of("int8", 0, peaks.dtype)

    def rows(start: int, stop: int) -> Packed:
        codes = source.packed_rows(name, start, stop).codes()
        with np.errstate(all="ignore"):
            return pack(scheme, k, codes, (peaks[start:stop] / np.float32(127))[:, None])

    return QuantisedMatrix(shape=(out, k), scheme=scheme, parts=(name, scale), rows=rows)


def _table(source: TensorSource, stem: str, ending: str) -> QuantisedMatrix:
    weight = f"{stem}.weight"
    state = _state(source, stem + ending)
    shape, block = state["shape"], state["blocksize"]
    codes = array_of(source, weight, types=("U8",)).reshape(-1)
    if codes.size != -(-elements(shape) // 2):
        raise CheckpointError(f"tensor {weight!r} has {codes.size} bytes for {shape[0]} × {shape[1]} codes of 4 bits")
    table = array_of(source, f"{weight}.quant_map", types=("F32",))
    expect_shape(f"{weight}.quant_map", table.shape, (16,))
    factors, more = _factors(source, weight, state, -(-elements(shape) // block))
    scheme = Scheme.parse(state["dtype"])
    k = shape[1]

    def rows(start: int, stop: int) -> Packed:
        first, last = start * k, stop * k
        some = codes[first // 2 : -(-last // 2)]
        both = np.stack([some >> 4, some & 15], axis=1).reshape(-1)[first % 2 :][: last - first]
        with np.errstate(all="ignore"):  # factors come from a file
            values = table[both] * factors[np.arange(first, last) // block]
            return Packed.from_array(values.astype(scheme.dtype.host).reshape(stop - start, k))

    parts = (weight, f"{weight}.quant_map", stem + ending, f"{weight}.absmax", *more)
    return QuantisedMatrix(shape=shape, scheme=scheme, parts=parts, rows=rows)


def _factors(source: TensorSource, weight: str, state: dict[str, Any], blocks: int) -> tuple[NDArray[Any], list[str]]:
    """Factor of each block, float32, and the tensors that were read in addition to ``absmax``."""
    name = f"{weight}.absmax"
    if "nested_blocksize" not in state:
        factors = array_of(source, name, types=("F32",)).reshape(-1)
        expect_shape(name, factors.shape, (blocks,))
        return factors, []
    more = [f"{weight}.nested_absmax", f"{weight}.nested_quant_map"]
    codes = array_of(source, name, types=("U8",)).reshape(-1)
    expect_shape(name, codes.shape, (blocks,))
    outer = array_of(source, more[0], types=("F32",)).reshape(-1)
    expect_shape(more[0], outer.shape, (-(-blocks // state["nested_blocksize"]),))
    table = array_of(source, more[1], types=("F32",))
    expect_shape(more[1], table.shape, (256,))
    with np.errstate(all="ignore"):
        inner = table[codes] * outer[np.arange(blocks) // state["nested_blocksize"]]
        return inner + np.float32(state["nested_offset"]), more


def _state(source: TensorSource, name: str) -> dict[str, Any]:
    """The checked JSON text that describes a matrix."""
    raw = array_of(source, name, types=("U8",)).reshape(-1)
    try:
        state = json.loads(bytes(raw[:_MAX_STATE])) if raw.size <= _MAX_STATE else None
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise CheckpointError(f"tensor {name!r} is not a short JSON object")
    shape, sizes = state.get("shape"), [state.get("blocksize"), state.get("nested_blocksize", 1)]
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and 0 < n < 2**31 for n in shape):
        raise CheckpointError(f"tensor {name!r}: shape is {str(shape)[:40]}, expected two sizes")
    if not all(type(n) is int and n > 0 for n in sizes) or state.get("dtype") not in _DTYPES:
        raise CheckpointError(f"tensor {name!r}: blocksize or dtype is invalid for bitsandbytes")
    if "nested_blocksize" in state and not isinstance(state.get("nested_offset"), (int, float)):
        raise CheckpointError(f"tensor {name!r}: nested_offset is missing")
    return {**state, "shape": (shape[0], shape[1])}
