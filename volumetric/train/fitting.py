"""Whether targets and weights of terms are what a loss can compare an output with, and the way out where not."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError


def check_shapes(kind: str, output: Shape, target: Array) -> None:
    """Raise `ShapeError` unless targets have the shape of the output: nothing is broadcast."""
    if target.shape != output:
        raise ShapeError(
            f"{kind}: the output has shape {output}, the target {target.shape}", hint=way_out(kind, output, target)
        )


def way_out(kind: str, output: Shape, target: Array) -> str:
    """Return what to do about targets that have another shape than a loss needs for an output of shape `output`."""
    lead, width = output[:-1], output[-1] if output else 1
    if target.shape == lead:
        if width == 1:
            return f"give them the axis of the one output: targets{_axis(lead, 'None')}"
        if kind == "cross_entropy":
            return "class ids are integers: targets.astype(int); other numbers are for the loss mse"
        if class_ids(target) is not None:
            return f"class ids are for the loss cross_entropy; or one-hot: numpy.eye({width})[targets]"
        return f"one number a sample is for a network with one output, and targets{_axis(lead, 'None')}"
    if target.shape[:-1] == lead:
        if kind == "cross_entropy" and target.shape[-1] == 1:
            whole = "" if class_ids(target) is not None else ".astype(int)"
            return f"class ids have no axis of their own: targets{_axis(lead, '0')}{whole}"
        return f"the network has {width} outputs, the targets {target.shape[-1]}: the two must be as many"
    if target.shape == output[::-1]:
        return "samples come first: targets.T"
    if target.size == int(np.prod(output)):
        return f"as many numbers, in another shape: targets.reshape({('-1', *map(str, output[1:]))})".replace("'", "")
    return f"one target for each output of each sample: {list(output)}"


def _axis(lead: Shape, last: str) -> str:
    return f"[:, {last}]" if len(lead) == 1 else f"[..., {last}]"


def class_ids(target: Array) -> Array | None:
    """Return class ids as integers, which bool are too; None where targets are other numbers."""
    if target.dtype.kind == "b":
        return target.astype(np.int32)
    return target if target.dtype.kind in "iu" else None


def check_classes(output: Shape) -> None:
    """Raise `ShapeError` where there is one class: its probability is 1 whatever the output, and nothing is learned."""
    if output[-1:] == (1,):
        raise ShapeError(
            f"cross_entropy: the output has shape {output}, and one output is one class: its loss is always 0",
            hint="for two classes use the loss bce with targets 0 and 1, or a network with two outputs and class ids",
        )


def check_ids(ids: Array, counts: Array, classes: int) -> None:
    """Raise `ShapeError` where an id that counts has no class."""
    wrong = ((ids < 0) | (ids >= classes)) & counts
    if not wrong.any():
        return
    at, odd = np.argwhere(wrong)[0].tolist(), int(ids[wrong][0])
    if odd == classes and int(ids[counts].min()) >= 1:
        hint = f"ids count from 0: targets - 1; or give the network {classes + 1} outputs"
    elif odd < 0:
        hint = "ids of rows that do not count are -100, or CrossEntropy(ignore_index=…)"
    else:
        hint = f"the network has {classes} outputs, one for each class: it needs {int(ids[counts].max()) + 1}"
    raise ShapeError(f"cross_entropy: class id {odd} at {at} is outside of 0 … {classes - 1}", hint=hint)


def check_probabilities(target: Array, weights: Array | None) -> None:
    """Raise `ShapeError` where soft targets are negative, or a row that counts has none: it would teach nothing."""
    if not target.size or not np.isfinite(target).all():
        return  # numbers that are not finite are named by who knows their place in the data
    low = target.min()
    if low < 0:
        raise ShapeError(
            f"cross_entropy: soft targets are probabilities, got {low}",
            hint="class ids are integers without the last axis; other numbers are for the loss mse",
        )
    empty = ~target.any(-1)
    if weights is not None:
        empty &= weights > 0
    if empty.any():
        at = np.argwhere(empty)[0].tolist()
        raise ShapeError(
            f"cross_entropy: the soft targets at {at} are all 0, which names no class",
            hint="a mask with weight 0 leaves a row out; for any number of classes in a row use the loss bce",
        )


def check_bits(target: Array) -> None:
    """Raise `ShapeError` where targets of a binary cross entropy lie outside of 0 … 1."""
    if not target.size or not (target.min() < 0 or target.max() > 1):
        return
    low, high = target.min(), target.max()
    hint = "other numbers are for the loss mse; more than two classes for cross_entropy"
    if (low, high) == (-1, 1):
        hint = "from -1 and 1: (targets + 1) / 2"
    elif high == 255:
        hint = "from bytes: targets / 255"
    raise ShapeError(f"bce: targets lie in 0 … 1, got {low} to {high}", hint=hint)


def spread_weights(mask: Array, shape: Shape) -> Array:
    """Spread `mask` over the trailing axes that it lacks.

    Raises
    ------
    ShapeError, SpecError : it has another shape, or a weight below 0
    """
    if mask.shape != shape[: mask.ndim]:
        hint = f"one weight for each term {list(shape)}, or for each sample: [{shape[0] if shape else 1}]"
        if mask.shape[: len(shape)] == shape and mask.size == int(np.prod(shape)):
            hint = f"mask.reshape({list(shape)})"
        raise ShapeError(f"a mask of shape {mask.shape} does not fit terms of shape {shape}", hint=hint)
    if (mask < 0).any():  # a NaN makes the loss one, and is then named by its place
        raise SpecError("a mask has a weight below 0", hint="weights of terms are 0 or more; 0 leaves a term out")
    return np.broadcast_to(mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim)), shape)
