"""Sliding windows over images: copied out of them, and summed back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from volumetric.kernels.gpu.graph.launch import Lowered, Request, alone, one_each, result, source


def unfold(request: Request) -> Lowered:
    """Windows of images as columns."""
    return _lower("unfold", request, request.inputs[0][1], request.inputs[0][2:])


def fold(request: Request) -> Lowered:
    """Columns summed into images."""
    return _lower("fold", request, request.outputs[0][1], request.attrs["sizes"])


def _lower(kernel: str, request: Request, channels: int, sizes: Sequence[int]) -> Lowered:
    attrs = request.attrs
    dims = [request.out_size, channels, prod(attrs["kernel"]), prod(attrs["counts"])]
    for values, missing in (
        (sizes, 1),
        (attrs["kernel"], 1),
        (attrs["stride"], 1),
        (attrs["dilation"], 1),
        (attrs["before"], 0),
        (attrs["counts"], 1),
    ):
        dims += [*[missing] * (3 - len(values)), *values, 0]
    buffers = {"x": source(0), "y": result()}
    return alone(one_each(kernel, request.out_size, request.caps, buffers, dims, preludes=("graph/windows",)))
