"""Softmax and the soft cap of logits."""

from __future__ import annotations

import math

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.base import Arrays, Grads, LayerSpec, Memory, Saved, layer


def softmax(x: Array) -> Array:
    """Softmax over the last axis; a row that is all -inf becomes zeros rather than NaN."""
    top = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def softmax_vjp(y: Array, gy: Array) -> Array:
    """Gradient of the input of `softmax`, from its output."""
    return y * (gy - (gy * y).sum(axis=-1, keepdims=True))


@layer("softmax")
class Softmax(LayerSpec):
    """``y = softmax(x / temperature)`` over the last axis."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise SpecError(f"softmax: temperature must be above 0, got {self.temperature}")

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        y = softmax(xs[0] / xs[0].dtype.type(self.temperature))
        return y, {"y": y}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((softmax_vjp(saved["y"], gy) / gy.dtype.type(self.temperature),))


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
