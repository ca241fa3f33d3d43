"""Softmax, the base of everything that turns logits along an axis into probabilities, and the soft cap of logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.layers.base import Arrays, Grads, LayerSpec, Memory, Saved, layer, show_shape


def centred(x: Array, out: Array | None = None) -> Array:
    """Shift the last axis so that its maximum is 0; rows that are all -inf stay, rows with NaN or +inf become NaN."""
    top = x.max(axis=-1, keepdims=True)
    return np.subtract(x, np.where(np.isneginf(top), 0, np.where(np.isposinf(top), math.nan, top)), out=out)


def softmax(x: Array) -> Array:
    """Softmax over the last axis; a row that is all -inf becomes zeros rather than NaN."""
    e = np.exp(centred(x))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def log_softmax(x: Array) -> Array:
    """``log softmax(x)`` over the last axis; a row that is all -inf becomes NaN."""
    shifted = centred(x)
    with np.errstate(invalid="ignore"):
        return shifted - _log_total(shifted)


def log_likelihoods(logits: Array, ids: Array) -> Array:
    """Return ``log softmax(logits)[id]`` of each row, ``[T]``, of which there are large ones, so `logits` are lost.

    Parameters
    ----------
    logits : ``[T, V]``, overwritten
    ids : the class of each row, ``[T]``
    """
    shifted = centred(logits, out=logits)
    picked = np.take_along_axis(shifted, ids[:, None], -1)
    with np.errstate(invalid="ignore"):
        return (picked - _log_total(shifted, out=shifted))[:, 0]


def _log_total(shifted: Array, out: Array | None = None) -> Array:
    """``log Σ exp`` over the last axis, which is kept; `out` has room for the exponentials."""
    with np.errstate(divide="ignore"):
        return np.log(np.exp(shifted, out=out).sum(-1, keepdims=True))


def softmax_vjp(y: Array, gy: Array) -> Array:
    """Gradient of the input of `softmax`, from its output."""
    return y * (gy - (gy * y).sum(axis=-1, keepdims=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSoftmax(LayerSpec):
    """Base of the layers that turn logits along one axis into probabilities.

    A slice whose logits are all -inf gives zeros; one with NaN or +inf gives NaN, and disturbs no other.

    Attributes
    ----------
    temperature : what logits are divided by first
    axis : axis of the logits, from the front or (below 0) from the end; never the first one, which counts rows
    """

    temperature: float = 1.0
    axis: int = -1

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise SpecError(f"{self.kind}: temperature must be above 0, got {self.temperature}")
        if self.axis == 0:
            raise SpecError(f"{self.kind}: axis 0 counts rows, which are independent", hint="axis=-1 is the last one")

    def outcomes(self, size: int) -> int:
        """Return how many probabilities `size` logits give; raise `ShapeError` if there cannot be so many logits."""
        return size

    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        """Map logits ``[..., size]`` to probabilities ``[..., outcomes(size)]``."""
        raise NotImplementedError(self.kind)

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        """Return the gradient of what `probabilities` took."""
        raise NotImplementedError(self.kind)

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        if not 0 < axis < len(shape):
            raise ShapeError(f"{self.kind} needs an axis {self.axis} besides the rows, got shape {show_shape(shape)}")
        return (*shape[:axis], self.outcomes(shape[axis]), *shape[axis + 1 :])

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        y, saved = self.probabilities(np.moveaxis(x, self.axis, -1) / x.dtype.type(self.temperature))
        return np.moveaxis(y, -1, self.axis), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        g = self.logits_vjp(saved, np.moveaxis(gy, self.axis, -1)) / gy.dtype.type(self.temperature)
        return Grads((np.moveaxis(g, -1, self.axis),))


@layer("softmax")
class Softmax(AxisSoftmax):
    """``y = softmax(x / temperature)`` along `axis`."""

    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        y = softmax(z)
        return y, {"y": y}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return softmax_vjp(saved["y"], gy)


@layer("softcap")
class Softcap(LayerSpec):
    """``y = cap · tanh(x / cap)``: Gemma 2's bound on logits (arXiv 2408.00118)."""

    cap: float

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.cap > 0 and math.isfinite(self.cap)):
            raise SpecError(f"softcap: cap must be above 0, got {self.cap}")

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        cap = xs[0].dtype.type(self.cap)
        t = np.tanh(xs[0] / cap)
        return cap * t, {"t": t}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy * (1 - np.square(saved["t"])),))
