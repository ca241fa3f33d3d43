"""Speed of single layers, forward and backward, beside PyTorch where that is installed."""

from __future__ import annotations

from benchmarks.suites.layers.cases import CASES, LayerCase, chosen
from benchmarks.suites.layers.run import LayerRow, measure_layers, render_layers

__all__ = ["CASES", "LayerCase", "LayerRow", "chosen", "measure_layers", "render_layers"]
