"""Maximum and sum of the windows of images, channel by channel, and their gradients.

``pool_max``  x [N,C,*sizes] → y [N,C,*counts], tap [N,C,*counts]: the largest element of each window, and the index of
            its tap, as a float. The first of equal elements wins; NaN is larger than every number; padding is -inf.
            Attributes as `unfold`.
``pool_max_grad``  g, tap [N,C,*counts] → [N,C,*sizes]: adds each g to the element of its tap. Attributes as `fold`.
``pool_sum``  x [N,C,*sizes] → y [N,C,*counts]: the sum of each window. Attributes as `unfold`.
``pool_spread``  g [N,C,*counts] → [N,C,*sizes], the transpose of pool_sum: the sum of the windows that see an element.
            Attributes as `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.images import FIELDS, check_windows, windows_of
from volumetric.graph.operations.operation import Attrs, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _pooled_shape(op: str, inputs: Sequence[Tensor], attrs: Attrs) -> tuple[int, ...]:
    """Return the shape with one element for each window."""
    require_floats(op, inputs)
    samples, channels, *sizes = inputs[0].shape
    check_windows(op, attrs, sizes)
    return (samples, channels, *attrs["counts"])


def _image(op: str, inputs: Sequence[Tensor], attrs: Attrs) -> tuple[int, ...]:
    """Return the shape of the image from inputs with one element for each window."""
    require_floats(op, inputs)
    check_windows(op, attrs, attrs["sizes"])
    shapes = {t.shape[2:] for t in inputs}
    require(shapes == {tuple(attrs["counts"])}, op, f"needs an element for each of {list(attrs['counts'])} windows")
    return (*inputs[0].shape[:2], *attrs["sizes"])


def _infer_max(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    shape = _pooled_shape("pool_max", inputs, attrs)
    return [float_output("largest", *shape), float_output("tap", *shape)]


def _run_max(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    y, tap = windows_of(attrs, inputs[0].shape[2:]).largest(inputs[0], attrs["counts"])
    return [y, tap.astype(y.dtype)]


def _vjp_max(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    sizes = work.shape(node.inputs[0])[2:]
    return [work.emit("pool_max_grad", (g, node.outputs[1]), **node.attrs, sizes=sizes)[0]]


def _run_max_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, tap = inputs
    return [windows_of(attrs, attrs["sizes"]).at_taps(g, tap.astype(np.int64), attrs["sizes"])]


def _vjp_sum(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    sizes = work.shape(node.inputs[0])[2:]
    return [work.emit("pool_spread", (g,), **node.attrs, sizes=sizes)[0]]


def _vjp_spread(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [work.emit("pool_sum", (g,), **{name: node.attrs[name] for name in FIELDS})[0]]


declare("pool_max", _infer_max, _run_max, _vjp_max)
declare(
    "pool_max_grad",
    lambda inputs, attrs: [float_output("image", *_image("pool_max_grad", inputs, attrs))],
    _run_max_grad,
)
declare(
    "pool_sum",
    lambda inputs, attrs: [float_output("sums", *_pooled_shape("pool_sum", inputs, attrs))],
    lambda inputs, attrs: [windows_of(attrs, inputs[0].shape[2:]).sums(inputs[0], attrs["counts"])],
    _vjp_sum,
)
declare(
    "pool_spread",
    lambda inputs, attrs: [float_output("image", *_image("pool_spread", inputs, attrs))],
    lambda inputs, attrs: [windows_of(attrs, attrs["sizes"]).spread_sums(inputs[0], attrs["sizes"])],
    _vjp_spread,
)
