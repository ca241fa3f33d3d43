"""What notebooks show of genomes, programs, firing and recordings: registered as `base.notebook_html.PICTURES`.

The packages below know nothing of pictures. They ask the registry, whose entries of the group ``volumetric.pictures``
import this module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from volumetric.base.notebook_html import PICTURES, framed_page
from volumetric.evolution.genome import Genome
from volumetric.observe.firing import Firing
from volumetric.observe.recording import Recording
from volumetric.program.layer.program_declaration import Program
from volumetric.viz.activity_film import film_page, film_rate, places_of
from volumetric.viz.activity_page import page_height
from volumetric.viz.figure import figure_svg
from volumetric.viz.network_drawing import draw_genome
from volumetric.viz.program_drawing import draw_program
from volumetric.viz.raster import draw_firing

_MOST_FRAMES: Final = 500
"""Maximum number of frames of a film in a notebook, whose file holds them all."""


def _genome(genome: Genome) -> str:
    return figure_svg(draw_genome(genome, ""))


def _program(program: Program) -> str:
    return figure_svg(draw_program(program, ""))


def _firing(firing: Firing) -> str:
    return figure_svg(draw_firing(firing))


def _recording(recording: Recording) -> str:
    shown = _first_frames(recording, _MOST_FRAMES)
    return framed_page(
        film_page(shown, rate=film_rate(shown)),
        title="activity",
        height=page_height(places_of(shown.scene), shown.scene),
    )


def _first_frames(recording: Recording, most: int) -> Recording:
    """Return a recording of at most so many frames; the others count as missed ticks."""
    left_out = len(recording) - most
    if left_out <= 0:
        return recording
    arrays = {
        name: getattr(recording, name)[:most] for name in ("ticks", "node", "odd", "fired", "edge", "reset", "scale")
    }
    return replace(
        recording,
        meta=msgspec.structs.replace(recording.meta, missed=recording.meta.missed + left_out * recording.meta.every),
        meters={name: values[:most] for name, values in recording.meters.items()},
        **arrays,
    )


PICTURES.update(genome=_genome, program=_program, firing=_firing, recording=_recording)
