"""What is measured: regions that each read four others, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import Array, F32Array
from volumetric.layers.clock import Event
from volumetric.network import Params
from volumetric.program import Canvas as Positions
from volumetric.program import Edge, In, Meter, Out, Program, Region
from volumetric.program.layer.carriers import EPS
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_params import codes_of

SIDE: Final = 8
"""Positions of a region are a square of so many."""
WIDTH: Final = 64
READS: Final = 4
"""Regions that each of them reads."""
HEADS: Final = 4
REACHED: Final = 1e30
"""Error that no meter reaches."""
_RULE = "rules.cross."

Share: TypeAlias = Literal["edge", "rule"]
Fires: TypeAlias = Literal["always", "clocked", "never"]


@dataclass(frozen=True)
class Canvas:
    """`regions` squares of 8 × 8 positions of 64 numbers, each of which reads four others, for `batch` streams."""

    regions: int
    batch: int = 1

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Region that is written and region that is read, of each edge."""
        draw, reads = rng.generator(5), min(READS, self.regions - 1)
        found: list[tuple[int, int]] = []
        for writes in range(self.regions):
            others = draw.permutation(self.regions - 1)[:reads].tolist()
            found += [(writes, other + (other >= writes)) for other in others]
        return tuple(found)

    @property
    def last(self) -> int:
        """A region that reads the first one, so that what came in shows soon."""
        return next((written for written, read in self.edges if read == 0), self.regions - 1)

    def program(self, share: Share, fires: Fires = "always") -> Program:
        """Return the program.

        Parameters
        ----------
        share : weights belong to each edge, or all edges have one set, and the program computes as the package does
        fires : ``"always"``: no region has a clock; ``"clocked"``: each has one that looks at its own meter, and
            fires at each step; ``"never"``: it looks at it likewise, and fires at none
        """
        above = REACHED if fires == "never" else -1.0
        boxes = [((SIDE * n, SIDE * (n + 1)), (0, SIDE)) for n in range(self.regions)]
        return Program(
            Positions(
                frames=1,
                shape=(SIDE * self.regions, SIDE),
                width=WIDTH,
                regions={
                    f"r{n}": Region(
                        box,
                        residual=False,  # what grows without end ends as NaN, at which no clock fires
                        clock=None if fires == "always" else Event(f"r{n}.prediction", above=above),
                    )
                    for n, box in enumerate(boxes)
                },
            ),
            edges=[Edge(reads=f"r{read}", writes=f"r{written}") for written, read in self.edges],
            ports={"in": In("r0", WIDTH), "out": Out(f"r{self.last}", SIDE, pool="flatten")},
            meters=() if fires == "always" else [Meter(f"r{n}") for n in range(self.regions)],
            heads=HEADS,
            share=share,
            parity=share == "rule",
        )

    def rows(self, count: int) -> F32Array:
        """Normal noise, ``[streams, 1, 64]``, so often."""
        row = rng.generator(3).standard_normal((self.batch, 1, WIDTH), np.float32)
        return np.repeat(row, count, axis=1)

    def arrays(self, params: Params, program: Program) -> dict[str, Array]:
        """Return what the package needs to compute the same: weights of the one rule, ``x``, what the input puts in."""
        own, facts = _own(params), facts_of(program)
        place = facts.places[0]
        code = facts.codes[place.positions] + sum(own[name] for name in codes_of(place))
        put = self.rows(1) @ own["ports.in.weight"].T + own["ports.in.bias"] + code
        rule = {f"p/{k.removeprefix(_RULE)}": value for k, value in own.items() if k.startswith(_RULE)}
        x = np.zeros((self.batch, program.canvas.positions, WIDTH), np.float32)
        return rule | {"x": x, "gy": np.ones_like(x), "p/put": put.astype(np.float32)}

    def read(self, params: Params, program: Program, canvas: Array) -> Array:
        """Return what the output hands out of a canvas, ``[streams, 8]``."""
        own, place = _own(params), facts_of(program).place(f"r{self.last}")
        pool = canvas[:, place.positions].reshape(len(canvas), -1)
        pool = pool - pool.mean(1, keepdims=True)
        pool /= np.sqrt(np.square(pool).mean(1, keepdims=True) + np.float32(EPS))
        pool = pool * own["ports.out.norm.weight"] + own["ports.out.norm.bias"]
        return pool @ own["ports.out.weight"].T + own["ports.out.bias"]


def _own(params: Params) -> dict[str, Array]:
    """Parameters by their names in the program."""
    return {key.split("/", 1)[1]: store.values() for key, store in params.items()}
