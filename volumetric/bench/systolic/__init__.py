"""Speed of clocked networks: cubes of dense layers, beside the same grid in PyTorch where that can be imported."""

from volumetric.bench.systolic.report import render_systolic as render_systolic
from volumetric.bench.systolic.run import TICKS as TICKS
from volumetric.bench.systolic.run import Cube as Cube
from volumetric.bench.systolic.run import SystolicRow as SystolicRow
from volumetric.bench.systolic.run import measure_systolic as measure_systolic
