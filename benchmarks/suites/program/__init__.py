"""Speed of programs: steps of streams, of regions that do not fire, and of training, beside canvas-engineering."""

from benchmarks.suites.program.cases import Canvas as Canvas
from benchmarks.suites.program.run import ProgramRow as ProgramRow
from benchmarks.suites.program.run import measure_programs as measure_programs
from benchmarks.suites.program.run import render_programs as render_programs
