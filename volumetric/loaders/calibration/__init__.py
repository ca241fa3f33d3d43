"""Quantisation with a calibration text: round weights to minimise the change of layer outputs, not of each weight."""

from __future__ import annotations

from volumetric.loaders.calibration.budget import budgeted
from volumetric.loaders.calibration.damage import Damage, measure_damage
from volumetric.loaders.calibration.passes import CALIBRATED_TOKENS, calibrated

__all__ = ["CALIBRATED_TOKENS", "Damage", "budgeted", "calibrated", "measure_damage"]
