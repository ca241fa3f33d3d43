"""Speed of programs: steps of streams, of regions that do not fire, and of training, beside canvas-engineering."""

from volumetric.bench.program.cases import Canvas as Canvas
from volumetric.bench.program.report import render_programs as render_programs
from volumetric.bench.program.run import ProgramRow as ProgramRow
from volumetric.bench.program.run import measure_programs as measure_programs
