"""Copies windows out of images (im2col), and sums them back into images.

``unfold``  x [N,C,*sizes] → [N, C·∏kernel, ∏counts]: element (c, taps; windows) is
            ``x[n, c, stride·window + dilation·tap − before]``, 0 outside. ``kernel stride dilation before counts``: one
            for each of 1 to 3 spatial axes. There may be fewer windows than fit.
``fold``    columns [N, C·∏kernel, ∏counts] → [N,C,*sizes], the transpose: each element is the sum of what unfold
            copied of it, taps in rising order (gather form). The same attributes and ``sizes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from volumetric.base._typing import Array
from volumetric.graph.numeric.image_windows import Windows
from volumetric.graph.operations.operation import Attrs, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

FIELDS = ("kernel", "stride", "dilation", "before", "counts")


def windows_of(attrs: Attrs, sizes: Sequence[int]) -> Windows:
    """Return the windows over an image, with the padding after it that they need."""
    kernel, stride, dilation, before = (attrs[name] for name in FIELDS[:4])
    spans = [
        d * (k - 1) + s * (n - 1) + 1 for k, s, d, n in zip(kernel, stride, dilation, attrs["counts"], strict=True)
    ]
    after = tuple(max(0, span - b - size) for span, b, size in zip(spans, before, sizes, strict=True))
    return Windows(kernel=kernel, stride=stride, dilation=dilation, before=before, after=after)


def check_windows(op: str, attrs: Attrs, sizes: Sequence[int]) -> None:
    """Raise `ShapeError` unless the attributes are for 1 to 3 axes and large enough."""
    require(1 <= len(sizes) <= 3, op, "works on 1 to 3 spatial axes")
    require(
        all(len(attrs[name]) == len(sizes) for name in FIELDS),
        op,
        f"each attribute needs {len(sizes)} numbers, one per axis",
    )
    least = {"before": 0}
    require(
        all(min(attrs[name]) >= least.get(name, 1) for name in FIELDS),
        op,
        "kernel, stride, dilation and counts must be at least 1, before at least 0",
    )


def _infer_unfold(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("unfold", inputs)
    samples, channels, *sizes = inputs[0].shape
    check_windows("unfold", attrs, sizes)
    return [float_output("columns", samples, channels * prod(attrs["kernel"]), prod(attrs["counts"]))]


def _run_unfold(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [windows_of(attrs, inputs[0].shape[2:]).unfold(inputs[0], attrs["counts"], 1)[:, 0]]


def _vjp_unfold(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    sizes = work.shape(node.inputs[0])[2:]
    return [work.emit("fold", (g,), **node.attrs, sizes=sizes)[0]]


def _infer_fold(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("fold", inputs)
    samples, depth, windows = inputs[0].shape
    check_windows("fold", attrs, attrs["sizes"])
    taps = prod(attrs["kernel"])
    require(
        depth % taps == 0 and windows == prod(attrs["counts"]),
        "fold",
        "the shape of columns does not match the windows",
    )
    return [float_output("image", samples, depth // taps, *attrs["sizes"])]


def _run_fold(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [windows_of(attrs, attrs["sizes"]).fold(inputs[0][:, None], attrs["counts"], attrs["sizes"])]


def _vjp_fold(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    attrs = {name: node.attrs[name] for name in FIELDS}
    return [work.emit("unfold", (g,), **attrs)[0]]


declare("unfold", _infer_unfold, _run_unfold, _vjp_unfold)
declare("fold", _infer_fold, _run_fold, _vjp_fold)
