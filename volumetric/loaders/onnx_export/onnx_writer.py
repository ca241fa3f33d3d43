"""The writer of ONNX nodes: names, constants, sizes that follow from the input, and bodies of loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.loaders.onnx_export.open_graph import RowSize, Size, Sizes

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_LAST: Final = np.iinfo(np.int64).max
"""As the end of a slice: the end of the axis."""


class OnnxWriter:
    """Collects nodes and initialisers of a model, or of the body of a loop in it.

    Parameters
    ----------
    rows_of : input whose first axis has the rows
    parent : the writer of the graph around a body, whose constants the body shares
    """

    def __init__(self, rows_of: str, parent: OnnxWriter | None = None) -> None:
        self.nodes: list[NodeProto] = []
        self.where = ""
        self._root = self if parent is None else parent._root
        self._rows_of = rows_of
        self.initializers: dict[str, TensorProto] = {}
        self.arrays: dict[str, Array] = {}
        """Name → value of a constant."""
        self.parameter_shapes: dict[str, tuple[int, ...]] = {}
        """Name of a parameter → its shape."""
        self._same: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._sizes: dict[Sizes, str] = {}
        self._count = 0
        self._reshaped: dict[str, tuple[str, Sizes]] = {} if parent is None else parent._root._reshaped
        self.notes: dict[str, tuple[Any, ...]] = {} if parent is None else parent._root.notes
        """Name of a value → how it was computed, for translations that see more than one operation."""

    def name(self, hint: str) -> str:
        """Return a new name."""
        root = self._root
        root._count += 1
        return f"{hint}_{root._count}"

    def body(self) -> OnnxWriter:
        """Return a writer for the body of a loop."""
        inner = OnnxWriter(self._rows_of, self)
        inner.where = self.where
        return inner

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node with one output and return its name."""
        return self.nodes_of(op, inputs, 1, **attrs)[0]

    def nodes_of(self, op: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """Add a node with several outputs and return their names; an empty input is left out."""
        from onnx import helper

        outputs = [self.name(op.lower()) for _ in range(count)]
        name = f"{self.where}/{outputs[0]}" if self.where else outputs[0]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=name, **attrs))
        return outputs

    def constant(self, value: Array) -> str:
        """Return an initialiser; equal ones are one."""
        from onnx import numpy_helper

        root = self._root
        value = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        known = (value.dtype.name, value.shape, value.tobytes())
        if known not in root._same:
            name = self.name("constant")
            root._same[known] = name
            root.arrays[name] = value
            root.initializers[name] = numpy_helper.from_array(value, name)
        return root._same[known]

    def number(self, value: float) -> str:
        """Return a float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        """Return an int64 vector."""
        return self.constant(np.array(values, np.int64))

    def value_of(self, name: str) -> Array | None:
        """Return the value of a constant, or None."""
        return self._root.arrays.get(name)

    def sizes(self, sizes: Sizes) -> str:
        """Return sizes as an int64 vector, computed from the rows of the input if they depend on them."""
        if not any(isinstance(size, RowSize) for size in sizes):
            return self.ints(*sizes)  # pyright: ignore[reportArgumentType]  (no RowSize)
        root = self._root
        if sizes not in root._sizes:
            parts = [root._one_size(size) for size in sizes]
            root._sizes[sizes] = parts[0] if len(parts) == 1 else root.node("Concat", *parts, axis=0)
        return root._sizes[sizes]

    def _one_size(self, size: Size) -> str:
        if not isinstance(size, RowSize):
            return self.ints(size)
        if size == RowSize(0, 1):
            name = self._sizes.get((size,)) or self.node("Shape", self._rows_of, start=0, end=1)
            self._sizes[size,] = name
            return name
        value = self._one_size(RowSize(0, 1))
        value = value if size.rate == 1 else self.node("Mul", value, self.ints(size.rate))
        return value if size.base == 0 else self.node("Add", value, self.ints(size.base))

    def positions(self) -> str:
        """Return the numbers of the rows, int32 ``[n]``."""
        root, size = self._root, (RowSize(0, 1), 0)
        if size not in root._sizes:
            zero, one = (root.constant(np.array(value, np.int64)) for value in (0, 1))
            stop = root.scalar_size(RowSize(0, 1))
            root._sizes[size] = root.cast(root.node("Range", zero, stop, one), "INT32")
        return root._sizes[size]

    def scalar_size(self, size: Size) -> str:
        """Return a size as an int64 scalar."""
        return (
            self.node("Squeeze", self.sizes((size,)), self.ints(0))
            if isinstance(size, RowSize)
            else self.constant(np.array(size, np.int64))
        )

    def reshape(self, x: str, before: Sizes, after: Sizes) -> str:
        """Return a value in another shape; a reshape of a reshape is one."""
        source, shape = self._reshaped.get(x, (x, before))
        if shape == after:
            return source
        open_axes = [i for i, size in enumerate(after) if isinstance(size, RowSize)]
        closed = [size for size in after if not isinstance(size, RowSize)]
        if len(open_axes) == 1 and prod(closed):
            shape_name = self.ints(*(-1 if isinstance(size, RowSize) else size for size in after))
            y = self.node("Reshape", source, shape_name)
        elif len(after) == 0:
            y = self.node("Squeeze", source)
        else:
            y = self.node("Reshape", source, self.sizes(after), allowzero=1)
        self._reshaped[y] = (source, shape)
        return y

    def source_of(self, x: str) -> str:
        """Return the value that reshapes led to `x`."""
        return self._reshaped.get(x, (x, ()))[0]

    def zeros(self, count: int) -> str:
        """Return a vector of zeros."""
        return self.constant(np.zeros(count, np.float32))

    def width_of(self, name: str) -> int | None:
        """Return the size of the last axis of a parameter, or None for other values."""
        shape = self._root.parameter_shapes.get(name)
        return None if shape is None else shape[-1]

    def part(self, x: str, axis: int, start: int, stop: int | None) -> str:
        """Return ``start:stop`` of one axis; None: to its end."""
        end = _LAST if stop is None else stop
        return self.node("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def flipped(self, x: str, axis: int) -> str:
        """Return the elements of an axis in reverse."""
        least = self.ints(np.iinfo(np.int64).min)
        return self.node("Slice", x, self.ints(-1), least, self.ints(axis), self.ints(-1))

    def cast(self, x: str, dtype: str) -> str:
        """Return a value in another type, by its name in ONNX."""
        from onnx import TensorProto

        return self.node("Cast", x, to=getattr(TensorProto, dtype))

    def initializer(self, name: str, tensor: TensorProto) -> str:
        """Add an initialiser of any type."""
        tensor.name = name
        self._root.initializers[name] = tensor
        return name


def used_names(nodes: Sequence[NodeProto]) -> set[str]:
    """Return the names that nodes read, those in bodies included."""
    names: set[str] = set()
    for node in nodes:
        names |= set(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= used_names(list(attribute.g.node)) | {output.name for output in attribute.g.output}
    return names


def drop_unused(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Return the nodes that outputs need, in their order."""
    needed, retained = set(outputs), []
    for node in reversed(nodes):
        if needed & set(node.output):
            retained.append(node)
            needed |= used_names([node])
    return retained[::-1]
