"""RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) and LayerNorm (Ba et al. 2016, arXiv 1607.06450)."""

from __future__ import annotations

from volumetric.base._typing import Shape
from volumetric.layers.emit_scope import Scope, as_rows
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("rms_norm")
class RMSNorm(LayerSpec):
    """Normalises rows by their root mean square.

    ::

        y = x / √(mean(x²) + eps) · w          with unit_offset: · (1 + w)

    The mean is over the last axis. With ``r = 1/√(mean(x²) + eps)`` and ``h = gy · w``: ``x̄ = r h − x r³ mean(h x)``,
    ``w̄ = Σ gy x r``. If a square exceeds float32 the row becomes 0, see docs/numbers.md.

    Zhang & Sennrich 2019 (arXiv 1910.07467).

    Attributes
    ----------
    num_features : features of a row
    eps : added to the mean of squares
    unit_offset : the gain is 1 + w (Gemma)
    """

    num_features: int = positional()
    eps: float = positional(default=1e-6)
    unit_offset: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_features")

    def params(self) -> tuple[ParamSpec, ...]:
        init = "zeros" if self.unit_offset else "ones"
        return (ParamSpec(name="weight", shape=(self.num_features,), init=init, packable=False),)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.num_features)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        y = work.norm(as_rows(work, x), p["weight"], kind="rms", eps=self.eps, unit_offset=self.unit_offset)
        return work.reshape(y, work.shape(x))


@layer("layer_norm")
class LayerNorm(LayerSpec):
    """Normalises rows by their mean and variance.

    ::

        y = (x − mean(x)) / √(var(x) + eps) · w + b

    Mean and biased variance are over the last axis. The mean is stored in two parts: the float32 value and its rounding
    error. So large means lose no digits: 768 numbers of spread 1 about 10⁴ or 10⁶ are within 10⁻⁶ of float64 on every
    device. With a mean of one part the errors would be 10⁻³ and 10⁻¹.

    Ba et al. 2016 (arXiv 1607.06450).

    Attributes
    ----------
    num_features : features of a row
    eps : added to the variance
    bias : whether there is b
    """

    num_features: int = positional()
    eps: float = positional(default=1e-5)
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_features")

    def params(self) -> tuple[ParamSpec, ...]:
        weight = ParamSpec(name="weight", shape=(self.num_features,), init="ones", packable=False)
        if not self.bias:
            return (weight,)
        return weight, ParamSpec(name="bias", shape=(self.num_features,), init="zeros", packable=False)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.num_features)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        return work.reshape(
            work.norm(as_rows(work, x), p["weight"], p.get("bias"), kind="layer", eps=self.eps), work.shape(x)
        )
