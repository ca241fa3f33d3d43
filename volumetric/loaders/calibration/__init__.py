"""Quantisation with a calibration text: round weights to minimise the change of layer outputs, not of each weight."""

from __future__ import annotations

from volumetric.loaders.calibration.bit_budget import schemes_for_budget
from volumetric.loaders.calibration.damage import TensorDamage, measure_damage
from volumetric.loaders.calibration.quantising_run import CALIBRATED_TOKENS, calibrate_params

__all__ = ["CALIBRATED_TOKENS", "TensorDamage", "calibrate_params", "measure_damage", "schemes_for_budget"]
