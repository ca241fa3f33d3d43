"""Speed of a model on a device, in the rows that readers of llama-bench know."""

from __future__ import annotations

from volumetric.bench.report import Row, render
from volumetric.bench.run import Case, cases, measure, profile

__all__ = ["Case", "Row", "cases", "measure", "profile", "render"]
