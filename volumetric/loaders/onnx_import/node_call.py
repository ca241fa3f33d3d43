"""What an operator gets while it is emitted: its node, and the ways of writing nodes that many operators share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph.build import GraphBuilder
from volumetric.loaders.onnx_import.onnx_declaration import OnnxNode, OperatorGraph
from volumetric.loaders.onnx_import.onnx_values import InputsNeededError, OnnxValue, known_value, tensor_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCall:
    """One node while it is emitted: its attributes, and what operators need to write nodes.

    Attributes
    ----------
    work : the graph under construction
    node : the node
    opset : version of the operators
    run_graph : emits a graph inside the node: takes it and its inputs, returns its outputs
    switches : inputs of the graph whose elements rather should be known than that both branches of an `If` run
    """

    work: GraphBuilder
    node: OnnxNode
    opset: int
    run_graph: Callable[[OperatorGraph, Sequence[OnnxValue]], list[OnnxValue]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """Name of the node for messages."""
        return f"{self.node.op} {self.node.name or self.node.outputs[0]!r}"

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or `default`."""
        value = self.attributes.get(name)
        return default if value is None else value

    def numbers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Return an attribute with several whole numbers."""
        value = self.attributes.get(name, default)
        return None if value is None else tuple(map(int, value))

    def array(self, value: OnnxValue, what: str) -> Array:
        """Return the elements of an input that must be known now.

        Raises
        ------
        InputsNeededError : they depend on the elements of inputs
        """
        if value.array is not None:
            return value.array
        names = ", ".join(sorted(value.sources)) or "parameters"
        raise InputsNeededError(value.sources, f"{self.label}: {what} depends on the elements of {names}")

    def ints(self, value: OnnxValue, what: str) -> tuple[int, ...]:
        """Return whole numbers that must be known now."""
        return tuple(int(n) for n in self.array(value, what).reshape(-1))

    def number(self, value: OnnxValue, what: str) -> float:
        """Return one number that must be known now."""
        array = self.array(value, what)
        if array.size != 1:
            raise ShapeError(f"{self.label}: {what} must be one number, got shape {list(array.shape)}")
        return array.reshape(-1)[0].item()

    def axes(self, name: str, value: OnnxValue | None, rank: int) -> tuple[int, ...] | None:
        """Return axes from an input or, in older versions, from an attribute; rising, None if there are none."""
        axes = self.numbers(name) if value is None else self.ints(value, name)
        return None if axes is None else tuple(sorted({self.axis(axis, rank) for axis in axes}))

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from 0."""
        if not -rank <= axis < max(rank, 1):
            raise ShapeError(f"{self.label}: there is no axis {axis} among {rank}")
        return axis % max(rank, 1)

    def refuse(self, what: str, hint: str | None = None) -> UnsupportedError:
        """Return an error that says what of this node is not supported."""
        return UnsupportedError(f"{self.label}: {what} is not supported", hint=hint)

    def tensor(self, value: OnnxValue) -> int:
        """Return the tensor of a value; known elements become a constant."""
        if value.tensor is not None:
            return value.tensor
        if value.array is None:
            raise SpecError(f"{self.label}: a value has neither elements nor a tensor")
        if value.dtype.kind in "OSU":
            raise self.refuse("text")
        if value.dtype.kind == "c":
            raise self.refuse("a complex number")
        if value.size > 1 and not any(value.array.strides):  # one element that is repeated
            one = known_value(value.array[(slice(0, 1),) * len(value.shape)])
            return self.work.broadcast(self.tensor(one), value.shape)
        content = value.array.astype(np.float64).reshape(tensor_shape(value.shape))
        first = content.reshape(-1)[:1]
        if content.size > 1 and (content == first).all():
            one = self.work.constant(first.reshape((1,) * content.ndim), self.node.name or "constant")
            return self.work.broadcast(one, content.shape)
        return self.work.constant(content, self.node.name or "constant")

    def small_tensor(self, value: OnnxValue) -> int:
        """Return a tensor that broadcasts like the value: one element if all known elements are equal."""
        if value.array is not None and value.size > 1:
            flat = value.array.reshape(-1)
            if (flat == flat[0]).all():
                return self.tensor(known_value(flat[:1].reshape((1,) * len(value.shape))))
        return self.tensor(value)

    def result(self, tensor: int, dtype: np.dtype, shape: Shape | None = None, ids: int | None = None) -> OnnxValue:
        """Return the value of a tensor, reshaped to `shape` if it has one."""
        if shape is None:
            shape = self.work.shape(tensor)
        return OnnxValue(
            dtype=dtype, shape=tuple(shape), tensor=self.work.reshape(tensor, tensor_shape(shape)), ids=ids
        )

    def reshaped(self, value: OnnxValue, shape: Shape) -> OnnxValue:
        """Return a value in another shape."""
        if value.array is not None:
            return known_value(value.array.reshape(shape))
        ids = None if value.ids is None else self.work.reshape(value.ids, tensor_shape(shape))
        if prod(shape) != value.size:
            raise ShapeError(f"{self.label}: cannot reshape {list(value.shape)} to {list(shape)}")
        return self.result(self.tensor(value), value.dtype, shape, ids)

    def pair(self, name: str, a: int, b: int) -> int:
        """Emit a function of two tensors that broadcast, over any number of axes."""
        work = self.work
        try:
            shape = np.broadcast_shapes(work.shape(a), work.shape(b))
        except ValueError:
            raise ShapeError(
                f"{self.label}: shapes {list(work.shape(a))} and {list(work.shape(b))} do not broadcast"
            ) from None
        if len(shape) <= 4 or work.shape(a) == work.shape(b) or 1 in (prod(work.shape(a)), prod(work.shape(b))):
            wide = tuple(work.reshape(i, (1,)) if work.shape(i) and prod(work.shape(i)) == 1 else i for i in (a, b))
            return work.reshape(work.binary(name, *wide), shape)
        whole = [self.spread(i, shape) for i in (a, b)]
        return work.binary(name, *whole)

    def spread(self, tensor: int, shape: Shape) -> int:
        """Broadcast a tensor to a shape with as many axes or more."""
        own = self.work.shape(tensor)
        return self.work.broadcast(self.work.reshape(tensor, (1,) * (len(shape) - len(own)) + own), shape)

    def select(self, condition: int, a: int, b: int) -> int:
        """Emit `a` where `condition` is 1, and `b` where it is 0; what is not selected may be infinite or NaN."""
        off = self.work.affine(condition, -1.0, 1.0)
        return self.pair("add", self.pair("mul_nonzero", a, condition), self.pair("mul_nonzero", b, off))

    def equal(self, a: int, b: int) -> int:
        """Emit 1 where two tensors are equal, else 0."""
        apart = self.pair("add", self.pair("greater", a, b), self.pair("greater", b, a))
        return self.work.affine(apart, -1.0, 1.0)

    def take(self, tensor: int, axis: int, indices: Array) -> int:
        """Emit the elements of `tensor` at known indices along an axis."""
        work, shape = self.work, self.work.shape(tensor)
        indices = np.asarray(indices, np.int64).reshape(-1)
        size = shape[axis]
        outside = (indices < -size) | (indices >= size)
        if outside.any():
            raise ShapeError(f"{self.label}: index {int(indices[outside][0])} is out of bounds for {size} elements")
        indices = np.where(indices < 0, indices + size, indices)
        if len(indices) and (np.diff(indices) == 1).all():
            return work.part(tensor, axis, int(indices[0]), int(indices[-1]) + 1)
        if len(indices) == size and size and (np.diff(indices) == -1).all():
            return work.flip(tensor, axis)
        before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
        new = (*shape[:axis], len(indices), *shape[axis + 1 :])
        if 0 in new:
            return work.reshape(work.slice(work.reshape(tensor, (prod(shape),)), (0,), (0,)), new)
        rows = work.reshape(
            work.permute(work.reshape(tensor, (before, size, after)), (1, 0, 2)), (size, before * after)
        )
        picked = work.gather_rows(rows, work.constant(indices.astype(np.int32), "indices"))
        picked = work.permute(work.reshape(picked, (len(indices), before, after)), (1, 0, 2))
        return work.reshape(picked, new)

    def move_axis(self, tensor: int, source: int, target: int) -> int:
        """Emit a tensor with one axis elsewhere."""
        order = list(range(len(self.work.shape(tensor))))
        order.insert(target, order.pop(source))
        return self.work.permute(tensor, order)

    def along_last(self, tensor: int, axis: int, emit: Callable[[int], int]) -> int:
        """Emit a function of rows ``[R, W]`` along one axis; the rows of the result may have another length."""
        last = len(self.work.shape(tensor)) - 1
        moved = self.move_axis(tensor, axis, last)
        shape = self.work.shape(moved)
        rows = emit(self.work.reshape(moved, (prod(shape[:-1]), shape[-1])))
        return self.move_axis(self.work.reshape(rows, (*shape[:-1], self.work.shape(rows)[-1])), last, axis)
