"""What notebooks show of genomes, programs and firing: registered as `base.notebook_html.PICTURES`.

The packages below know nothing of pictures. They ask the registry, whose entries of the group ``volumetric.pictures``
import this module.
"""

from __future__ import annotations

from volumetric.base.notebook_html import PICTURES
from volumetric.evolution.genome import Genome
from volumetric.observe.firing import Firing
from volumetric.program.layer.program_declaration import Program
from volumetric.viz.figure import figure_svg
from volumetric.viz.network_drawing import draw_genome
from volumetric.viz.program_drawing import draw_program
from volumetric.viz.raster import draw_firing


def _genome(genome: Genome) -> str:
    return figure_svg(draw_genome(genome, ""))


def _program(program: Program) -> str:
    return figure_svg(draw_program(program, ""))


def _firing(firing: Firing) -> str:
    return figure_svg(draw_firing(firing))


PICTURES.update(genome=_genome, program=_program, firing=_firing)
