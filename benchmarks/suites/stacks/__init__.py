"""Speed of the cells of stacks: windows, with and without resets, and single rows, beside the package `cortical`."""

from benchmarks.suites.stacks.cases import CELLS as CELLS
from benchmarks.suites.stacks.cases import CellCase as CellCase
from benchmarks.suites.stacks.cases import chosen as chosen
from benchmarks.suites.stacks.run import StackRow as StackRow
from benchmarks.suites.stacks.run import measure_stacks as measure_stacks
from benchmarks.suites.stacks.run import render_stacks as render_stacks
