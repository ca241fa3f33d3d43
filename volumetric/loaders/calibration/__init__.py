"""Quantising with a text: weights are rounded so that what layers put out for it changes least, not each for itself."""

from __future__ import annotations

from volumetric.loaders.calibration.budget import budgeted
from volumetric.loaders.calibration.damage import Damage, measure_damage
from volumetric.loaders.calibration.passes import CALIBRATED_TOKENS, calibrated

__all__ = ["CALIBRATED_TOKENS", "Damage", "budgeted", "calibrated", "measure_damage"]
