"""Quantising with a text: weights are rounded so that what layers put out for it changes least, not each for itself."""

from __future__ import annotations

from volumetric.loaders.calibration.passes import CALIBRATED_TOKENS, calibrated

__all__ = ["CALIBRATED_TOKENS", "calibrated"]
