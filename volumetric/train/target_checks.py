"""Checks that targets and masks fit a loss and an output, and hints if not."""

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
    """Return a hint for targets of the wrong shape, for an output of shape `output`."""
    lead, width = output[:-1], output[-1] if output else 1
    if target.shape == lead:
        if width == 1:
            return f"add the axis of the only output: targets{_axis(lead, 'None')}"
        if kind == "cross_entropy":
            return "convert class ids to integers: targets.astype(int); for other numbers use the loss mse"
        if class_ids(target) is not None:
            return f"use the loss cross_entropy for class ids, or one-hot targets: numpy.eye({width})[targets]"
        return f"use one number for each sample with a network of one output, and targets{_axis(lead, 'None')}"
    if target.shape[:-1] == lead:
        if kind == "cross_entropy" and target.shape[-1] == 1:
            whole = "" if class_ids(target) is not None else ".astype(int)"
            return f"remove the last axis of class ids: targets{_axis(lead, '0')}{whole}"
        return f"the network has {width} outputs and the targets have {target.shape[-1]}: make the two equal"
    if target.shape == output[::-1]:
        return "put samples first: targets.T"
    if target.size == int(np.prod(output)):
        return f"reshape the targets: targets.reshape({('-1', *map(str, output[1:]))})".replace("'", "")
    if len(lead) == 2 and target.shape[:1] == lead[:1] and target.ndim < len(output):
        return (
            f"one target for each sequence needs a network that reads whole sequences, as sequential(({lead[1]}, "
            "features), LSTM(features, 16), LastStep(), 1); otherwise pass a target for each row"
        )
    return f"pass one target for each output of each sample: {list(output)}"


def _axis(lead: Shape, last: str) -> str:
    return f"[:, {last}]" if len(lead) == 1 else f"[..., {last}]"


def class_ids(target: Array) -> Array | None:
    """Return integer or bool targets as class ids; None for other targets."""
    if target.dtype.kind == "b":
        return target.astype(np.int32)
    return target if target.dtype.kind in "iu" else None


def check_classes(output: Shape) -> None:
    """Raise `ShapeError` for a single class: its probability is always 1, so nothing is learned."""
    if output[-1:] == (1,):
        raise ShapeError(
            f"cross_entropy: the output has shape {output}: with one class the loss is always 0",
            hint="for two classes use the loss bce with targets 0 and 1, or a network with two outputs and class ids",
        )


def check_ids(ids: Array, counts: Array, classes: int) -> None:
    """Raise `ShapeError` if an unmasked id is outside of the classes."""
    wrong = ((ids < 0) | (ids >= classes)) & counts
    if not wrong.any():
        return
    at, odd = np.argwhere(wrong)[0].tolist(), int(ids[wrong][0])
    if odd == classes and int(ids[counts].min()) >= 1:
        hint = f"count ids from 0: targets - 1; or use a network with {classes + 1} outputs"
    elif odd < 0:
        hint = "mark ignored rows with id -100, or set CrossEntropy(ignore_index=…)"
    else:
        hint = f"the network has {classes} outputs, one for each class; it needs {int(ids[counts].max()) + 1}"
    raise ShapeError(f"cross_entropy: class id {odd} at {at} is outside of 0 … {classes - 1}", hint=hint)


def check_probabilities(target: Array, weights: Array | None) -> None:
    """Raise `ShapeError` if soft targets are negative, or all 0 in an unmasked row."""
    if not target.size or not np.isfinite(target).all():
        return  # the caller reports non-finite numbers, because it knows their place in the data
    low = target.min()
    if low < 0:
        raise ShapeError(
            f"cross_entropy: soft targets must be probabilities, got {low}",
            hint="pass class ids as integers without the last axis; for other numbers use the loss mse",
        )
    empty = ~target.any(-1)
    if weights is not None:
        empty &= weights > 0
    if empty.any():
        at = np.argwhere(empty)[0].tolist()
        raise ShapeError(
            f"cross_entropy: the soft targets at {at} are all 0",
            hint="mask a row with weight 0 to skip it; for any number of classes in a row use the loss bce",
        )


def check_bits(target: Array) -> None:
    """Raise `ShapeError` if targets of a binary cross entropy are outside of 0 … 1."""
    if not target.size or not (target.min() < 0 or target.max() > 1):
        return
    low, high = target.min(), target.max()
    hint = "for other numbers use the loss mse, for more than two classes cross_entropy"
    if (low, high) == (-1, 1):
        hint = "convert from -1 and 1: (targets + 1) / 2"
    elif high == 255:
        hint = "convert from bytes: targets / 255"
    raise ShapeError(f"bce: targets must be in 0 … 1, got {low} to {high}", hint=hint)


def spread_weights(mask: Array, shape: Shape) -> Array:
    """Broadcast `mask` over missing trailing axes.

    Raises
    ------
    ShapeError, SpecError : the mask does not fit the shape, or has a weight below 0
    """
    if mask.shape != shape[: mask.ndim]:
        hint = f"pass one weight for each term {list(shape)}, or for each sample: [{shape[0] if shape else 1}]"
        if mask.shape[: len(shape)] == shape and mask.size == int(np.prod(shape)):
            hint = f"mask.reshape({list(shape)})"
        raise ShapeError(f"a mask of shape {mask.shape} does not fit terms of shape {shape}", hint=hint)
    if (mask < 0).any():  # a NaN makes the loss NaN, and is then reported with its place
        raise SpecError("a mask has a weight below 0", hint="use weights of 0 or more; 0 skips a term")
    return np.broadcast_to(mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim)), shape)
