"""Standardisation: features with mean 0 and deviation 1, by statistics that are saved with the trained network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import ShapeError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardisation:
    """``(x − mean) / deviation`` for each feature, as scikit-learn's StandardScaler.

    Attributes
    ----------
    mean : mean of each feature
    deviation : standard deviation of each feature, divided by N; 1 if it was 0
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that both have the same number of features, and that deviations are above 0."""
        if len(self.mean) != len(self.deviation) or not self.mean:
            raise SpecError(
                f"standardisation: got {len(self.mean)} means and {len(self.deviation)} deviations, expected as many"
            )
        if not np.isfinite([*self.mean, *self.deviation]).all() or min(self.deviation) <= 0:
            raise SpecError("standardisation: means must be finite and deviations above 0")

    @classmethod
    def of(cls, inputs: Array) -> Self:
        """Return the statistics of samples, ``[samples, features]``.

        Raises
        ------
        ShapeError
            `inputs` are not rows of numbers.
        """
        if inputs.ndim != 2 or not inputs.size or not np.issubdtype(inputs.dtype, np.floating):
            raise ShapeError(
                f"standardisation: expected rows of numbers [samples, features], got {inputs.dtype} {inputs.shape}"
            )
        wide = np.asarray(inputs, np.float64)
        mean, deviation = wide.mean(0), wide.std(0)
        # The deviation of a constant is a rounding error, not exactly 0.
        same = deviation <= 8 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean=tuple(mean.tolist()), deviation=tuple(np.where(same, 1.0, deviation).tolist()))

    def apply(self, inputs: Array) -> F32Array:
        """Return `inputs` standardised: features along the last axis, or over all axes of a sample together.

        Raises
        ------
        ShapeError
            A sample has a different number of features.
        """
        count, shape = len(self.mean), inputs.shape
        together = inputs.ndim > 1 and shape[-1] != count
        x = inputs.reshape(len(inputs), -1) if together else inputs
        if x.ndim == 0 or x.shape[-1] != count:
            raise ShapeError(f"the inputs have shape {shape}, but the network was trained on {count} features")
        scaled = (np.asarray(x, np.float64) - self.mean) / self.deviation
        return scaled.astype(np.float32).reshape(shape)
