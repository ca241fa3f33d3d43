"""Speed of clocked networks: cubes of dense layers, beside the same grid in PyTorch where that can be imported."""

from benchmarks.suites.systolic.run import TICKS as TICKS
from benchmarks.suites.systolic.run import Cube as Cube
from benchmarks.suites.systolic.run import SystolicRow as SystolicRow
from benchmarks.suites.systolic.run import measure_systolic as measure_systolic
from benchmarks.suites.systolic.run import render_systolic as render_systolic
