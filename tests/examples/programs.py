"""Small programs with an input shape; and the examples of the kind."""

from __future__ import annotations

from typing import Any

from tests.examples.entry import Examples
from tests.learning.tasks import learn
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Level, Out, Port, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_layer import Program as ProgramLayer
from volumetric.program.layer.region import Canvas, Identity, Region

EYE = Region(((0, 1), (0, 2)), family="observation")
BELIEF = Region(((1, 2), (0, 2)))
EDGES = (Edge("eye", "belief"), Edge("belief", "belief", operator="integrate"))
PORTS: dict[str, Port] = {"seen": In("eye", 2), "guess": Out("belief", 3)}


def program(
    regions: dict[str, Region] | None = None,
    edges: tuple[Edge, ...] = EDGES,
    ports: dict[str, Port] | None = None,
    shape: tuple[int, ...] = (2, 2),
    frames: int = 1,
    **fields: Any,
) -> ProgramLayer:
    """A program of width 4 with two heads: an eye and a belief, unless told otherwise."""
    canvas = Canvas(frames, shape, 4, {"eye": EYE, "belief": BELIEF} if regions is None else regions)
    return ProgramLayer(program=Program(canvas, edges, PORTS if ports is None else ports, heads=2, **fields))


TIMED = program(
    {
        "eye": EYE,
        "belief": Region(((1, 2), (0, 2)), clock="inner(every(2), 1)"),
        "store": Region(((2, 3), (0, 2)), clock="cooldown(err.prediction > 0.2 || on(now), 1)"),
        "err": Region(((3, 4), (0, 1)), carrier="residual", family="residual"),
    },
    (
        *EDGES,
        Edge("eye", "err"),
        Edge("belief", "err"),
        Edge("belief", "store", write="gate"),
        Edge("store", "belief", when="err.prediction < 5"),
    ),
    {"seen": In("eye", 2), "now": Signal(), "guess": Out("belief", 2, "flatten"), "kept": Out("store", 1)},
    (4, 2),
)
"""Clocks by steps, by an error, and by a signal; inner steps; a condition."""
CARRIED = program(
    {
        "eye": EYE,
        "belief": Region(((1, 2), (0, 2)), carrier="filter"),
        "store": Region(((2, 3), (0, 2)), carrier="memory", family="memory", slots=3),
        "thing": Region(((3, 4), (0, 2)), identity=Identity(2, births=True)),
        "plan": Region(((4, 5), (0, 1)), carrier="diffusive", clock="inner(every(1), 1)"),
    },
    (
        Edge("eye", "belief"),
        Edge("eye", "store"),
        Edge("store", "belief"),
        Edge("belief", "thing", lag=2),
        Edge("thing", "plan"),
        Edge("plan", "belief", lag=1, fill="lerp"),
    ),
    {"seen": In("eye", 2, "add"), "noise": Level("plan"), "guess": Out("plan", 1), "store": Out("store", 1)},
    (5, 2),
    meters=(Meter("store", ("a", "b"), corrected=True),),
)
"""A filter, a memory, slots, a denoiser, and what was some steps before."""

WHOLE = program(
    {
        "eye": Region(((0, 1), (0, 1)), family="observation"),
        "belief": Region(((1, 2), (0, 2)), carrier="filter"),
        "err": Region(((0, 1), (1, 2)), carrier="residual", family="residual"),
        "store": Region(
            ((2, 3), (0, 1)),
            carrier="memory",
            family="memory",
            slots=2,
            clock="cooldown(err.prediction > 0.2 || on(now), 1)",
        ),
        "plan": Region(((2, 3), (1, 2)), clock="inner(every(2), 1)"),
    },
    (
        Edge("eye", "belief"),
        Edge("store", "belief", rule="pooling", when="!err.prediction > 50"),
        Edge("eye", "err", rule="copy"),
        Edge("belief", "err", rule="pooling"),
        Edge("belief", "store", rule="copy"),
        Edge("belief", "plan", rule="pooling", lag=1),
        Edge("eye", "plan", rule="copy", write="gate"),
    ),
    {"seen": In("eye", 2), "now": Signal(), "guess": Out("belief", 1), "plan": Out("plan", 1)},
    (3, 2),
)
"""A little of all: clocks, carriers, a meter, inner steps, a condition and a lag."""
KNOWN = program(
    {
        "eye": EYE,
        "belief": BELIEF,
        "known": Region(((2, 3), (0, 2)), carrier="constant"),
        "lore": Region(((3, 4), (0, 1)), carrier="constant", slots=3),
    },
    (
        *EDGES,
        Edge("known", "belief", mask=Bits([[1, 0], [0, 1]])),
        Edge("known", "belief", rule="local", options={"window": 1}, lag=1),
        Edge("lore", "belief", write="gate", lag=1, fill="lerp"),
    ),
    {"seen": In("eye", 3, "add"), **{name: Out(name, 1) for name in ("belief", "known", "lore")}},
    (4, 2),
)
"""Constants: on the canvas and as rows beside it, read by edges with and without lags, and handed out."""
LITTLE = (
    Region(((0, 1), (0, 1)), family="observation"),
    Region(((0, 1), (1, 2))),
    Region(((0, 1), (2, 3)), carrier="constant"),
    Region(((0, 1), (3, 4)), carrier="constant", slots=2),
)
PROGRAMS: dict[str, Examples] = {
    "program": Examples(
        cases={
            "program": (
                ProgramLayer(
                    program=Program(
                        Canvas(1, (1, 4), 2, dict(zip(("eye", "belief", "known", "lore"), LITTLE, strict=True))),
                        (
                            Edge("eye", "belief"),
                            *(Edge(name, "belief", rule="pooling") for name in ("belief", "known", "lore")),
                        ),
                        {"seen": In("eye", 2), "guess": Out("belief", 1)},
                        heads=1,
                    )
                ),
                (2, 3, 2),
            )
        },
        sized=lambda r, a, b: (
            program(
                edges=(Edge("eye", "belief", rule="pooling"),), ports={"seen": In("eye", a), "guess": Out("belief", b)}
            ),
            (min(r, 3), a),
        ),
        task=learn(program(), row=(2,), rows=4, rate=0.3),
    ),
}
