"""Arrays of an ONNX file: stored in it or beside it, and decoded where only casts and DequantizeLinear read them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.loaders.onnx_import.onnx_declaration import is_floating, onnx_dtype
from volumetric.loaders.onnx_import.onnx_types import type_name

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto


def array_of(tensor: TensorProto, directory: Path) -> Array:
    """Return the array of a tensor, from the file or from a file beside it. Raises `CheckpointError`."""
    from onnx import TensorProto as Kinds
    from onnx import numpy_helper

    if tensor.data_type == Kinds.STRING:
        return np.array([s.decode("utf-8", "replace") for s in tensor.string_data], object).reshape(tuple(tensor.dims))
    dtype = onnx_dtype(type_name(tensor.data_type))
    if min(tensor.dims, default=0) < 0:
        raise CheckpointError(f"the array {tensor.name!r} has a negative size: {list(tensor.dims)}")
    try:
        if tensor.data_location == Kinds.EXTERNAL:
            return _external_array(tensor, dtype, directory)
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, MemoryError, OverflowError) as error:
        raise CheckpointError(
            f"the array {tensor.name!r} does not fit its shape {list(tensor.dims)}: {error}"
        ) from None


def _external_array(tensor: TensorProto, dtype: np.dtype, directory: Path) -> Array:
    """Return an array from a file beside the model, which must be in its directory."""
    entry = {e.key: e.value for e in tensor.external_data}
    location = entry.get("location", "")
    home = directory.resolve()
    path = (home / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(home):
        raise CheckpointError(f"the array {tensor.name!r} is outside the directory of the model: {location!r}")
    if not path.is_file():
        raise CheckpointError(f"the file {location!r} with the array {tensor.name!r} is missing")
    try:
        offset = int(entry.get("offset", 0))
        count = prod(tensor.dims)
        size = -(-count // 2) if dtype.name in ("int4", "uint4") else count * dtype.itemsize
        length = int(entry.get("length", size))
    except ValueError:
        raise CheckpointError(f"the place of the array {tensor.name!r} in {location!r} is no number") from None
    if offset < 0 or length != size or offset + size > path.stat().st_size:
        raise CheckpointError(
            f"the array {tensor.name!r} needs {size} bytes at {offset} of {location!r}, which has less"
        )
    if dtype.name in ("int4", "uint4"):
        raw = np.fromfile(path, np.uint8, size, offset=offset)
        pairs = np.stack([raw & 15, raw >> 4], 1).reshape(-1)[:count].astype(np.int8)
        pairs = np.where((pairs > 7) & (dtype.name == "int4"), pairs - 16, pairs)
        return pairs.astype(dtype).reshape(tuple(tensor.dims))
    return np.fromfile(path, dtype, count, offset=offset).reshape(tuple(tensor.dims))


def decoded_array(node: NodeProto, values: list[Array]) -> Array | None:
    """Return the result of a cast between floating-point types, or of DequantizeLinear; None for other nodes."""
    fields = {a.name: a.i for a in node.attribute}
    if node.op_type == "Cast":
        dtype = onnx_dtype(type_name(fields.get("to", 0)))
        return values[0].astype(dtype) if is_floating(dtype) and is_floating(values[0].dtype) else None
    x, scale, *zero = values
    codes = x.astype(np.float32)
    axis, block = fields.get("axis", 1), fields.get("block_size", 0)

    def spread(value: Array) -> Array:
        value = value.astype(np.float32)
        if value.size == 1:
            return value.reshape(())
        if block:
            return np.repeat(value, block, axis).take(range(x.shape[axis]), axis)
        return value.reshape(tuple(value.size if i == axis % x.ndim else 1 for i in range(x.ndim)))

    return (codes - spread(zero[0]) if zero else codes) * spread(scale)
