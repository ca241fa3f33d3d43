"""Pursuit programs: one computes everything at each row, the other reads the input only when it is surprised.

Both have the same regions and parameter keys, so that one can continue from the weights of the other.
"""

from __future__ import annotations

from typing import Final

from volumetric.program.layer.edge import Edge
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Out, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.region import Canvas, Region
from volumetric.program.layer.region_learning import Learning
from volumetric.train.pursuit.world import CELLS

METER: Final = "err.prediction"
"""Prediction error: difference of the eye and the belief's expectation over the last rows."""
_SPARSITY: Final = 0.3
_DECAY: Final = 0.3
_SILENCE: Final = 4


def always_on(width: int = 48) -> Program:
    """Return the program whose regions and edges all compute at each row."""
    return _program(width, None)


def triggered(threshold: float, width: int = 48) -> Program:
    """Return the program that reads the input only when it is surprised.

    If the `METER` is above the threshold, or after four rows without, the eye and the error correct the belief;
    otherwise the belief follows its prediction. A plan is stored when it is shown, and read when the bell rings.
    """
    return _program(width, threshold)


def _program(width: int, threshold: float | None) -> Program:
    """Return the agent's program; without a `threshold` its edges and regions fire at every row."""

    def when(text: str) -> str | None:
        return None if threshold is None else text

    surprised = when(f"silence({METER} > {threshold}, {_SILENCE})")
    canvas = Canvas(
        frames=1,
        shape=(4, 4),
        width=width,
        regions={
            "eye": Region(((0, 1), (0, 4)), family="observation"),
            "belief": Region(((1, 2), (0, 4)), family="state", carrier="filter", residual=False),
            "act": Region(((2, 3), (0, 4)), family="action", clock="inner(every(1), 1)"),
            "sign": Region(((3, 4), (0, 1)), family="observation", clock=when("on(cue) || on(bell)")),
            "store": Region(((3, 4), (1, 2)), family="memory", carrier="memory", slots=2, clock=when("on(cue)")),
            "err": Region(
                ((3, 4), (2, 3)),
                family="residual",
                carrier="residual",
                learning=Learning("calibration", {"sparsity": _SPARSITY}),
            ),
        },
    )
    return Program(
        canvas,
        edges=[
            Edge(reads="eye", writes="err", operator="emit_residual", rule="copy"),
            Edge(reads="belief", writes="err", operator="emit_residual"),
            Edge(reads="eye", writes="belief", operator="observe", when=surprised),
            Edge(reads="err", writes="belief", operator="correct", when=surprised),
            Edge(reads="sign", writes="belief", operator="observe", when=when("on(bell)")),
            Edge(reads="store", writes="belief", operator="retrieve", when=when("on(bell)")),
            Edge(reads="sign", writes="store", operator="write"),
            Edge(reads="belief", writes="act", operator="act"),
        ],
        ports={
            "frame": In("eye", CELLS),
            "plan": In("sign", CELLS + 1),
            "cue": Signal(),
            "bell": Signal(),
            "cell": Out("act", CELLS, pool="flatten"),
        },
        meters=[Meter("err", reduce="rms", decay=_DECAY)],
    )
