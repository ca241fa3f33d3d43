"""A GRU-style gate instead of a residual sum (Parisotto et al. 2019, GTrXL, arXiv 1910.06764)."""

from __future__ import annotations

from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec

BIAS = 2.0
"""Initial value of b, subtracted from z: a new gate passes most of x on."""
_MATRICES = ("wr", "ur", "wz", "uz", "wg", "ug")


def gru_gate_params(name: str, width: int) -> tuple[ParamSpec, ...]:
    """Return the parameters of a gate below the path `name`."""
    matrices = (affine_params(f"{name}{matrix}.", width, width, bias=False)[0] for matrix in _MATRICES)
    bias = ParamSpec(name=f"{name}bias", shape=(width,), init="uniform", bounds=(BIAS, BIAS), packable=False)
    return *matrices, bias
