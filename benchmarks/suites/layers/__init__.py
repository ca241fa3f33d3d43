"""Speed of single layers, forward and backward, beside PyTorch where that is installed."""

from __future__ import annotations

from benchmarks.suites.layers.cases import CASES, LayerCase, chosen
from benchmarks.suites.layers.report import LayerRow, render_layers
from benchmarks.suites.layers.run import measure_layers

__all__ = ["CASES", "LayerCase", "LayerRow", "chosen", "measure_layers", "render_layers"]
