"""In NumPy: carriers: what regions make of what edges bring. In NumPy; each is a formula over rows, and its."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays
from tests.oracles.dense import affine
from tests.oracles.numeric.norms import standardised
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, sigmoid
from volumetric.graph.numeric.softmax import softmax
from volumetric.program.layer.carriers import EPS, KEY_RATE
from volumetric.program.layer.program_facts import Place


def own(p: Arrays, place: Place) -> dict[str, Array]:
    """Return the parameters of a region by their names there."""
    start = f"regions.{place.name}."
    return {name.removeprefix(start): value for name, value in p.items() if name.startswith(start)}


def layer_norm(p: Arrays, name: str, x: Array) -> Array:
    """Norm of rows with gain and bias."""
    return standardised(x, EPS)[0] * p[f"{name}weight"] + p[f"{name}bias"]


def predicted(p: Arrays, x: Array) -> Array:
    """Return what a filter expects, ``x̂ = x + W_p LN(x)``."""
    return x + affine(p, "predict.", layer_norm(p, "predict.norm.", x))


def filtered(p: Arrays, x: Array, z: Array, written: Array) -> tuple[Array, Array]:
    """Predict, and correct by what was brought.

    ``x̂ = x + W_p LN(x)``, ``e = z - x̂``, ``K = σ(W_k [x̂; z] + b_k)``, ``x' = x̂ + K ⊙ e``, as a Kalman filter whose gain
    is learned. Where nothing was written the prediction stands: e is 0.

    Parameters
    ----------
    x, z : rows before the step, and what edges bring, ``[B, N, d]``
    written : bool ``[B, N]``

    Returns
    -------
    x' and e
    """
    expected = predicted(p, x)
    z = np.where(written[..., None], z, expected)
    error = z - expected
    gain = sigmoid(affine(p, "gain.", np.concatenate([expected, z], axis=-1)))
    return expected + gain * error, error


def remembered(p: Arrays, keys: Array, values: Array, z: Array, written: Array) -> tuple[Array, Array]:
    """Write rows to the slots of a memory, whose keys κ are like them.

    ``a_ij = softmax_i(κ_i · W_q z_j / √d)``, ``g_j = σ(w · z_j + b)``, 0 where row j was not written,
    ``μ_i ← μ_i ⊙ Π_j (1 - a_ij g_j) + Σ_j a_ij g_j W_v z_j``, and κ likewise with W_k, at a tenth of the rate.

    Parameters
    ----------
    keys, values : κ and μ, ``[B, S, d]``
    z : rows ``[B, N, d]``
    written : bool ``[B, N]``
    """
    z = np.where(written[..., None], z, z.dtype.type(0))
    root = z.dtype.type(z.shape[-1] ** -0.5)
    weights = softmax(affine(p, "memory.q.", z) @ keys.swapaxes(1, 2) * root)  # [B, N, S]
    weights = weights * np.where(written[..., None], sigmoid(affine(p, "memory.write.", z)), z.dtype.type(0))

    def moved(held: Array, name: str, rate: float) -> Array:
        part = weights * weights.dtype.type(rate)
        return held * np.prod(1 - part, axis=1)[..., None] + part.swapaxes(1, 2) @ affine(p, f"memory.{name}.", z)

    return moved(keys, "k", KEY_RATE), moved(values, "v", 1.0)


def bound(p: Arrays, heads: int, slots: Array, values: Array) -> Array:
    """Bind what a region holds to its slots: ``LN(slots + cross(slots ← values))``, times a life gate if it has one.

    Parameters
    ----------
    slots : ``[B, capacity, d]``
    values : ``[B, N, d]``
    """
    made = layer_norm(p, "bind.norm.", slots + cross(p, heads, slots, values, values, prefix="bind."))
    if "life.up.weight" not in p:
        return made
    return made * sigmoid(affine(p, "life.down.", activate("gelu", affine(p, "life.up.", made))))


def noised(x: Array, level: Array, noise: Array) -> Array:
    """Return ``√ᾱ x + √(1 - ᾱ) ε`` for levels ᾱ ``[B]``: 0 is noise alone."""
    level = np.clip(level, 0, 1)[:, None, None]
    return np.sqrt(level) * x + np.sqrt(1 - level) * noise


def denoised(x: Array, z: Array, level: Array, after: Array) -> Array:
    """Take a step of DDIM without noise of its own (Song et al. 2021, arXiv 2010.02502).

    ``x' = √ᾱ' x̂₀ + √(1 - ᾱ') ε`` with ``ε = (x - √ᾱ x̂₀) / √(1 - ᾱ)``, x̂₀ being what edges bring; at ᾱ = 1 x' is x̂₀.

    Parameters
    ----------
    x, z : what the region holds, and x̂₀, ``[B, N, d]``
    level, after : ᾱ and ᾱ', ``[B]``
    """
    level, after = (np.clip(of, 0, 1)[:, None, None] for of in (level, after))
    left = np.where(level < 1, 1 - level, 1)
    noise = np.where(level < 1, (x - np.sqrt(level) * z) / np.sqrt(left), x.dtype.type(0))
    return np.sqrt(after) * z + np.sqrt(1 - after) * noise
