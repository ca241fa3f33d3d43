"""An ONNX graph as plain, frozen data: nodes, constants and the names of inputs, outputs and parameters.

It needs no `onnx` and becomes JSON, so a layer can hold it. Large arrays of floating-point numbers are parameters and
not in it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from functools import cache
from math import prod

import ml_dtypes
import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError

_SMALL_TYPES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "int4", "uint4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}


def onnx_dtype(name: str) -> np.dtype:
    """Return the NumPy type of a name such as ``"int64"`` or ``"bfloat16"``."""
    return _SMALL_TYPES.get(name) or np.dtype(name)


def is_whole(dtype: np.dtype) -> bool:
    """Whether numbers of a type are integers; truth values are not."""
    return dtype.kind in "iu" or dtype.name in ("int4", "uint4")


def is_floating(dtype: np.dtype) -> bool:
    """Whether numbers of a type have fractions."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedArray:
    """An array as text.

    Attributes
    ----------
    data : base64 of the zlib stream of its elements, row-major and little-endian
    """

    dtype: str
    shape: Shape
    data: str

    def array(self) -> Array:
        """Return the elements. Raises `CheckpointError` if they do not fit the shape."""
        return _unpack(self)


def pack_array(value: Array) -> PackedArray:
    """Return an array as text."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes(), 6)).decode()
    return PackedArray(dtype=value.dtype.name, shape=value.shape, data=data)


@cache
def _unpack(packed: PackedArray) -> Array:
    dtype = onnx_dtype(packed.dtype)
    size = prod(packed.shape) * dtype.itemsize
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(packed.data, validate=True), size + 1)
    except (zlib.error, binascii.Error) as error:
        raise CheckpointError(f"a constant of an ONNX graph cannot be unpacked: {error}") from None
    if len(content) != size:
        raise CheckpointError(f"a constant of an ONNX graph has {len(content)} bytes, its shape needs {size}")
    array = np.frombuffer(content, dtype).reshape(packed.shape)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttribute:
    """One attribute of a node; exactly one field besides the name is set."""

    name: str
    number: int | float | None = None
    text: str | None = None
    numbers: tuple[int | float, ...] | None = None
    texts: tuple[str, ...] | None = None
    array: PackedArray | None = None
    graph: OperatorGraph | None = None

    @property
    def value(self) -> object:
        """The value; an array is unpacked."""
        if self.array is not None:
            return self.array.array()
        fields = (self.number, self.text, self.numbers, self.texts, self.graph)
        return next((value for value in fields if value is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """One operation. A name ``""`` among inputs or outputs is one that is left out."""

    op: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: tuple[NodeAttribute, ...] = ()
    name: str = ""

    def graphs(self) -> tuple[OperatorGraph, ...]:
        """Return the graphs inside the node, such as the branches of an `If`."""
        return tuple(a.graph for a in self.attributes if a.graph is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxInput:
    """An input: its name, NumPy type, and shape; a text in the shape is a size that a call sets."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxParameter:
    """An array that is stored outside the graph: its name, shape, and the type that it has in the file."""

    name: str
    shape: Shape
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxConstant:
    """An array that is known when the graph is built."""

    name: str
    value: PackedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGraph:
    """Nodes in execution order.

    Attributes
    ----------
    opset : version of the operators of ONNX
    outputs : names, with the types that the file declares for them, ``""`` if it declares none
    """

    nodes: tuple[OnnxNode, ...] = ()
    inputs: tuple[OnnxInput, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    parameters: tuple[OnnxParameter, ...] = ()
    constants: tuple[OnnxConstant, ...] = ()
    opset: int = 21

    def all_parameters(self) -> tuple[OnnxParameter, ...]:
        """Return the parameters of this graph and of the graphs in its nodes."""
        inner = (p for node in self.nodes for graph in node.graphs() for p in graph.all_parameters())
        return (*self.parameters, *inner)
