"""Element-wise operations, and binary ones with broadcasting.

``unary``       x → y. ``name``: one of `formula.functions.FUNCTIONS`: activations, exp log neg square sqrt …, affine.
                ``alpha``, ``beta``: affine is ``alpha · x + beta``; for the others they are 1 and 0.
``unary_grad``  g, x → g · f'(x). ``name``: an activation other than linear. At a kink the derivative from the left
                (relu: 0 at 0; leaky_relu: 0.01 at 0). ``from_tanh`` and the like: x is the result of f instead.
``binary``      a, b → c, NumPy broadcasting. ``name``: add sub mul div; max min (NumPy: NaN wins); greater: 1 where
                a > b, else 0 (NaN: 0); mul_nonzero: a · b, but 0 where b is 0, even if a is NaN; mask: a where b is not
                0, else -inf (b holds 0 and 1 only, and has no gradient). At most 4 axes may remain after merging
                neighbours that broadcast alike (`layout.broadcast_layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.formula.binary_functions import PAIRS
from volumetric.formula.unary_functions import FUNCTIONS, OWN, SLOPES, slope_by_name, slopes_of
from volumetric.graph.expression_nodes import emit_expressions
from volumetric.graph.numeric.numpy_formulas import function_of
from volumetric.graph.operations.operation import Attrs, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

UNARY: tuple[str, ...] = tuple(OWN)
"""Built-in names of `unary`; packages can register more activations."""


def _infer_unary(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("unary", inputs)
    if attrs["name"] not in FUNCTIONS:
        raise SpecError(f"unary: unknown name {attrs['name']!r}", hint="one of " + ", ".join(FUNCTIONS))
    return [float_output(attrs["name"], *inputs[0].shape)]


def _run_unary(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x = inputs[0]
    return list(function_of("x alpha beta", FUNCTIONS[attrs["name"]].value)(x, *_factors(x, attrs)))


def _factors(x: Array, attrs: Attrs) -> tuple[Any, Any]:
    return x.dtype.type(attrs["alpha"]), x.dtype.type(attrs["beta"])


def _vjp_unary(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    x, y, name = node.inputs[0], node.outputs[0], node.attrs["name"]
    slopes = slopes_of(name)
    if slopes is not None:
        return [work.unary_grad(g, y if slopes.from_result else x, slopes.from_result or name)]
    return emit_expressions(work, [FUNCTIONS[name].input_gradient], {"x": x, "y": y, "g": g}, node.attrs)


def _infer_unary_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("unary_grad", inputs)
    try:
        slope_by_name(attrs["name"])
    except KeyError as error:
        raise SpecError(f"unary_grad: unknown name {error}", hint="one of " + ", ".join(SLOPES)) from None
    require(inputs[0].shape == inputs[1].shape, "unary_grad", "both inputs must have the same shape")
    return [float_output("grad", *inputs[1].shape)]


def _run_unary_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, x = inputs
    return [g * function_of("x", slope_by_name(attrs["name"]))(x)[0]]


BINARY: tuple[str, ...] = tuple(PAIRS)
"""Names of `binary`."""


def _infer_binary(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("binary", inputs)
    if attrs["name"] not in BINARY:
        raise SpecError(f"binary: unknown name {attrs['name']!r}", hint="one of " + ", ".join(BINARY))
    a, b = (t.shape for t in inputs)
    axes = max(len(a), len(b))
    pairs = list(zip(*((1,) * (axes - len(shape)) + shape for shape in (a, b)), strict=True))
    if any(n != m and 1 not in (n, m) for n, m in pairs):
        raise ShapeError(f"binary: shapes {list(a)} and {list(b)} do not broadcast")
    return [float_output(attrs["name"], *(m if n == 1 else n for n, m in pairs))]


def _run_binary(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return list(function_of("a b", PAIRS[attrs["name"]].value)(*inputs))


def _vjp_binary(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    a, b = node.inputs
    tensors = {"a": a, "b": b, "c": node.outputs[0], "g": g}
    gradients = emit_expressions(work, PAIRS[node.attrs["name"]].input_gradients, tensors, {})
    return [None if g is None else sum_to_shape(work, g, work.shape(i)) for i, g in zip((a, b), gradients, strict=True)]


def sum_to_shape(work: GraphBuilder, g: int, shape: Shape) -> int:
    """Sum the gradient `g` of a broadcast operand over the repeated axes, to the operand's `shape`."""
    lead = len(work.shape(g)) - len(shape)
    wide = (1,) * lead + shape
    axes = tuple(i for i, (n, m) in enumerate(zip(work.shape(g), wide, strict=True)) if n != m)
    if axes:
        g = work.reduce(g, "sum", axes)
    return work.reshape(g, shape)


declare("unary", _infer_unary, _run_unary, _vjp_unary)
declare("unary_grad", _infer_unary_grad, _run_unary_grad)
declare("binary", _infer_binary, _run_binary, _vjp_binary)
