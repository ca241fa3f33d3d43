"""Standardisation: features with mean 0 and deviation 1, by statistics that stay with a network once it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import ShapeError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardisation:
    """``(x − mean) / deviation`` for each feature, which scikit-learn's StandardScaler computes too.

    Attributes
    ----------
    mean : of each feature
    deviation : standard deviation of each, over N; 1 where it was 0
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that both have as many features, and that one can divide by the deviations."""
        if len(self.mean) != len(self.deviation) or not self.mean:
            raise SpecError(f"standardisation: {len(self.mean)} means and {len(self.deviation)} deviations")
        if not np.isfinite([*self.mean, *self.deviation]).all() or min(self.deviation) <= 0:
            raise SpecError("standardisation: means must be finite and deviations above 0")

    @classmethod
    def of(cls, inputs: Array) -> Self:
        """Return the statistics of samples, ``[samples, features]``.

        Raises
        ------
        ShapeError
            `inputs` are no rows of numbers.
        """
        if inputs.ndim != 2 or not inputs.size or not np.issubdtype(inputs.dtype, np.floating):
            raise ShapeError(
                f"features are standardised in rows of numbers [samples, features], got {inputs.dtype} {inputs.shape}"
            )
        wide = np.asarray(inputs, np.float64)
        mean, deviation = wide.mean(0), wide.std(0)
        # The deviation of a constant is what summing rounds, not exactly 0.
        same = deviation <= 8 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean=tuple(mean.tolist()), deviation=tuple(np.where(same, 1.0, deviation).tolist()))

    def apply(self, inputs: Array) -> F32Array:
        """Return `inputs` standardised: features along the last axis, or over all axes of a sample together.

        Raises
        ------
        ShapeError
            A sample has another number of features.
        """
        count, shape = len(self.mean), inputs.shape
        together = inputs.ndim > 1 and shape[-1] != count
        x = inputs.reshape(len(inputs), -1) if together else inputs
        if x.ndim == 0 or x.shape[-1] != count:
            raise ShapeError(f"the inputs have shape {shape}, the network was trained on {count} features")
        scaled = (np.asarray(x, np.float64) - self.mean) / self.deviation
        return scaled.astype(np.float32).reshape(shape)
