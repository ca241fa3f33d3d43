"""`linear`: attention without a softmax, whose cost is linear in the keys."""

from __future__ import annotations

from volumetric.layers.program.attention.base import attention
from volumetric.layers.program.attention.heads import ByHeads

LEAST = 1e-6
"""Added to the sum that results are divided by."""


@attention("linear")
class Linear(ByHeads):
    """``a = W_o φ(q) (φ(k)ᵀ v) / (φ(q) · Σ φ(k) + 1e-6) + b_o`` by heads, φ(x) = elu(x) + 1.

    Katharopoulos et al. 2020, arXiv 2006.16236.
    """
