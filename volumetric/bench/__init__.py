"""Speed of a model on a device, in rows like those of llama-bench."""

from __future__ import annotations

from volumetric.bench.bench_report import Row, render
from volumetric.bench.case_runs import Case, cases, measure, profile

__all__ = ["Case", "Row", "cases", "measure", "profile", "render"]
