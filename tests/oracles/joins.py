"""In NumPy: how the outputs of branches become one array, and how its gradient is handed back to them."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array


def join(values: list[Array], combine: str) -> Array:
    """Concatenate, add or average arrays."""
    if combine == "concat":
        return np.concatenate(values, axis=-1)
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / total.dtype.type(len(values)) if combine == "avg" else total


def join_vjp(gy: Array, combine: str, widths: list[int]) -> list[Array]:
    """Gradients of the arrays that `join` took."""
    if combine == "concat":
        return np.split(gy, np.cumsum(widths)[:-1], axis=-1)
    return [gy / gy.dtype.type(len(widths)) if combine == "avg" else gy] * len(widths)


def scatter(values: list[Array], cells: tuple[int, ...], count: int) -> Array:
    """Put each value into its cell: ``[..., width]`` of each -> ``[..., count * width]``, zeros in the other cells."""
    *lead, width = values[0].shape
    grid = np.zeros((*lead, count, width), values[0].dtype)
    for cell, value in zip(cells, values, strict=True):
        grid[..., cell, :] = value
    return grid.reshape(*lead, count * width)


def scatter_vjp(gy: Array, cells: tuple[int, ...], count: int) -> list[Array]:
    """Gradients of the arrays that `scatter` took."""
    grid = gy.reshape(*gy.shape[:-1], count, gy.shape[-1] // count)
    return [grid[..., cell, :] for cell in cells]


def weighed(x: Array, weights: Array) -> list[Array]:
    """What each branch reads, ``weights[..., i] · x``; 0 where the weight is 0, even if x is NaN."""
    parts = (weights[..., i, None] for i in range(weights.shape[-1]))
    return [np.where(part == 0, x.dtype.type(0), part * x) for part in parts]


def weighed_vjp(x: Array, weights: Array, grads: list[Array]) -> tuple[Array, Array]:
    """Gradients of x and of the weights of `weighed`; that of a weight of 0 is 0, as the gate keeps it there."""
    gx = mix(grads, weights)
    dots = np.stack([(g * x).sum(axis=-1) for g in grads], axis=-1)
    return gx, np.where(weights == 0, x.dtype.type(0), dots)


def mix(values: list[Array], weights: Array) -> Array:
    """Sum ``Σᵢ weights[..., i] · values[i]``; a value of weight 0 has no part in it, not even with NaN."""
    total = np.zeros_like(values[0])
    for i, value in enumerate(values):
        weight = weights[..., i, None]
        total += weight * np.where(weight == 0, 0, value)
    return total


def mix_vjp(values: list[Array], weights: Array, gy: Array) -> tuple[list[Array], Array]:
    """Gradients of the values and of the weights of `mix`; that of a weight of 0 is 0, as the gate keeps it there."""
    parts = [np.where(weights[..., i, None] == 0, 0, value) for i, value in enumerate(values)]
    g_weights = np.stack([(gy * part).sum(axis=-1) for part in parts], axis=-1)
    return [gy * weights[..., i, None] for i in range(len(values))], g_weights
