"""Speed of fabrics: lattices of sLSTM cells that run and learn."""

from benchmarks.suites.fabric.run import FabricRow as FabricRow
from benchmarks.suites.fabric.run import Sheet as Sheet
from benchmarks.suites.fabric.run import measure_fabrics as measure_fabrics
from benchmarks.suites.fabric.run import render_fabrics as render_fabrics
