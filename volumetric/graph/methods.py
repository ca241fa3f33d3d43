"""The builder methods that are named after operations: each emits an operation, or nodes equal to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from volumetric.base._typing import Shape
from volumetric.graph.operations.operation import widest


class OperationMethods(ABC):
    """Operations as methods: each emits nodes, or returns its argument if the operation would change nothing.

    The abstract methods come first. A new operation needs no method here: `emit` takes it by name.
    """

    @abstractmethod
    def shape(self, i: int) -> Shape:
        """Return the shape of tensor `i`."""

    @abstractmethod
    def emit(self, op: str, inputs: Sequence[int], **attrs: Any) -> tuple[int, ...]:
        """Add a node and return its outputs."""

    def gemm(
        self,
        a: int,
        b: int,
        bias: int | None = None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        groups: int | None = None,
    ) -> int:
        """Products of groups; `groups` defaults to that of the operand with more, or to 0 if an operand has none."""
        if groups is None:
            both = self.shape(a)[0], self.shape(b)[0]
            groups = widest(*both) if all(both) else 0
        inputs = (a, b) if bias is None else (a, b, bias)
        attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": groups, "activation": "linear"}
        return self.emit("gemm", inputs, **attrs)[0]

    def unary(self, x: int, name: str) -> int:
        """Element-wise function."""
        return x if name == "linear" else self.emit("unary", (x,), name=name, alpha=1.0, beta=0.0)[0]

    def affine(self, x: int, alpha: float, beta: float = 0.0) -> int:
        """``alpha · x + beta``."""
        if alpha == 1 and beta == 0:
            return x
        return self.emit("unary", (x,), name="affine", alpha=float(alpha), beta=float(beta))[0]

    def copy(self, x: int) -> int:
        """Return the same values in a separate tensor."""
        return self.emit("unary", (x,), name="affine", alpha=1.0, beta=0.0)[0]

    def unary_grad(self, g: int, x: int, name: str) -> int:
        """``g · f'(x)`` of an activation."""
        return g if name == "linear" else self.emit("unary_grad", (g, x), name=name)[0]

    def binary(self, name: str, a: int, b: int) -> int:
        """Element-wise function of two tensors that broadcast."""
        return self.emit("binary", (a, b), name=name)[0]

    def add(self, *terms: int) -> int:
        """Sum of tensors, from left to right."""
        total = terms[0]
        for term in terms[1:]:
            total = self.binary("add", total, term)
        return total

    def reduce(self, x: int, name: str, axes: Sequence[int]) -> int:
        """Sum, maximum or mean over axes, which stay with size 1."""
        return self.emit("reduce", (x,), name=name, axes=tuple(axes))[0]

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """View in another shape."""
        return x if self.shape(x) == tuple(shape) else self.emit("reshape", (x,), shape=tuple(shape))[0]

    def permute(self, x: int, perm: Sequence[int]) -> int:
        """Axes in another order."""
        return x if list(perm) == list(range(len(perm))) else self.emit("permute", (x,), perm=tuple(perm))[0]

    def slice(self, x: int, starts: Sequence[int], stops: Sequence[int]) -> int:
        """Part of a tensor."""
        if not any(starts) and tuple(stops) == self.shape(x):
            return x
        return self.emit("slice", (x,), starts=tuple(starts), stops=tuple(stops))[0]

    def last(self, x: int, axis: int) -> int:
        """Return the last element of an axis, which stays with size 1."""
        size = self.shape(x)[axis]
        return self.part(x, axis, size - 1, size) if size > 0 else self.emit("last", (x,), axis=axis)[0]

    def flip(self, x: int, axis: int) -> int:
        """Elements of one axis in reverse."""
        return self.emit("flip", (x,), axis=axis)[0]

    def part(self, x: int, axis: int, start: int, stop: int) -> int:
        """``start:stop`` of one axis."""
        shape = self.shape(x)
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        return self.slice(x, starts, tuple(stop if i == axis else n for i, n in enumerate(shape)))

    def split(self, x: int, sizes: Sequence[int], axis: int) -> list[int]:
        """Consecutive parts of one axis."""
        return [self.part(x, axis, end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]

    def pad(self, x: int, before: Sequence[int], after: Sequence[int]) -> int:
        """Zeros around a tensor."""
        if not any(before) and not any(after):
            return x
        return self.emit("pad", (x,), before=tuple(before), after=tuple(after))[0]

    def concat(self, parts: Sequence[int], axis: int) -> int:
        """Tensors side by side along an axis."""
        return parts[0] if len(parts) == 1 else self.emit("concat", parts, axis=axis)[0]

    def broadcast(self, x: int, shape: Sequence[int]) -> int:
        """Repeat axes of size 1."""
        return x if self.shape(x) == tuple(shape) else self.emit("broadcast", (x,), shape=tuple(shape))[0]

    def assign(self, key: str, value: int, apply: int | None = None) -> int:
        """Write `value` into the persistent buffer `key`, unless the one element of `apply` is 0."""
        return self.emit("assign", (value,) if apply is None else (value, apply), key=key)[0]

    def gather_rows(self, table: int, ids: int) -> int:
        """Rows of a table."""
        return self.emit("gather_rows", (table, ids))[0]

    def scatter_rows(self, g: int, ids: int, rows: int) -> int:
        """Sums of rows by their ids."""
        return self.emit("scatter_rows", (g, ids), rows=rows)[0]

    def softmax(self, x: int) -> int:
        """Softmax of rows."""
        return self.emit("softmax", (x,))[0]

    def softmax_grad(self, y: int, g: int) -> int:
        """Gradient of the input of `softmax`."""
        return self.emit("softmax_grad", (y, g))[0]

    def entmax(self, x: int, alpha: float) -> int:
        """α-entmax of rows."""
        return self.emit("entmax", (x,), alpha=float(alpha))[0]

    def entmax_grad(self, y: int, g: int, alpha: float) -> int:
        """Gradient of the input of `entmax`."""
        return self.emit("entmax_grad", (y, g), alpha=float(alpha))[0]

    def keep_largest(self, x: int, k: int) -> int:
        """Set all but the k largest elements of each row to -inf."""
        return self.emit("keep_largest", (x,), k=k)[0]

    def norm(
        self,
        x: int,
        gain: int | None = None,
        bias: int | None = None,
        *,
        kind: str,
        eps: float,
        unit_offset: bool = False,
    ) -> int:
        """Normalised rows (the node's second output, the statistics, is for gradients only)."""
        inputs = tuple(i for i in (x, gain, bias) if i is not None)
        return self.emit("norm", inputs, kind=kind, eps=float(eps), unit_offset=unit_offset)[0]

    def rope(self, x: int, cos: int, sin: int, *, back: bool = False) -> int:
        """Rotary embedding of ``[B, T, H, D]``."""
        return self.emit("rope", (x, cos, sin), back=back)[0]

    def recurrent(
        self, cell: str, from_x: int, weight: int, states: Sequence[int], bias: int | None, keep: int | None = None
    ) -> tuple[int, ...]:
        """Recurrent cell over all steps: y, the last states except h, and the values stored for the gradient."""
        end = tuple(i for i in (bias, keep) if i is not None)
        attrs = {"cell": cell, "bias": bias is not None, "resets": keep is not None}
        return self.emit("recurrent", (from_x, weight, *states, *end), **attrs)

    def unfold(self, x: int, **windows: Shape) -> int:
        """Windows of an image as columns: kernel, stride, dilation, before, counts."""
        return self.emit("unfold", (x,), **windows)[0]

    def fold(self, x: int, sizes: Shape, **windows: Shape) -> int:
        """Transpose of `unfold`."""
        return self.emit("fold", (x,), **windows, sizes=tuple(sizes))[0]

    def loss(
        self, name: str, prediction: int, target: int, weights: int | None = None, **fields: Any
    ) -> tuple[int, ...]:
        """Total, count and gradient of the total with respect to the prediction."""
        inputs = (prediction, target) if weights is None else (prediction, target, weights)
        return self.emit("loss", inputs, name=name, **fields)

    def update(
        self,
        name: str,
        param: int,
        grad: int,
        slots: Sequence[int],
        scalars: int,
        *,
        in_place: bool = True,
        **fields: Any,
    ) -> tuple[int, ...]:
        """Optimiser step: the new parameter and slots, in place by default."""
        return self.emit("update", (param, grad, *slots, scalars), name=name, in_place=in_place, **fields)

    def sumsq(self, tensors: Sequence[int]) -> int:
        """Sum of the squares of all elements of all tensors."""
        return self.emit("sumsq", tensors)[0]

    def fake_quant(self, x: int, scheme: str) -> int:
        """Nearest values that a scheme can represent; float32 represents them all."""
        return x if scheme == "float32" else self.emit("fake_quant", (x,), scheme=scheme)[0]
