"""Speed of the cells of stacks: windows, with and without resets, and single rows, beside the package `cortical`."""

from volumetric.bench.stacks.cases import CELLS as CELLS
from volumetric.bench.stacks.cases import CellCase as CellCase
from volumetric.bench.stacks.cases import chosen as chosen
from volumetric.bench.stacks.report import render_stacks as render_stacks
from volumetric.bench.stacks.run import StackRow as StackRow
from volumetric.bench.stacks.run import measure_stacks as measure_stacks
