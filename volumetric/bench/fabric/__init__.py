"""Speed of fabrics: lattices of sLSTM cells that run and learn."""

from volumetric.bench.fabric.run import FabricRow as FabricRow
from volumetric.bench.fabric.run import Sheet as Sheet
from volumetric.bench.fabric.run import measure_fabrics as measure_fabrics
from volumetric.bench.fabric.run import render_fabrics as render_fabrics
