"""A small thing to learn for a layer: to do what a teacher of the same build does.

Student and teacher differ in all their parameters. Inputs are fixed, every update sees all of them, and the update is
the plain ``w ← w − rate · g``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import LayerSpec
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower
from volumetric.train import Batch

SAMPLES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to learn.

    Attributes
    ----------
    layers : one after the other
    row : shape of a row of input; None for token ids
    rows : rows of a sample, where rows see each other; None: a sample is a row
    rate, steps : of gradient descent
    spread : standard deviation of the teacher's difference from the student
    """

    layers: tuple[LayerSpec, ...] = ()
    row: tuple[int, ...] | None = None
    rows: int | None = None
    rate: float = 0.3
    steps: int = 48
    spread: float = 0.4

    @property
    def network(self) -> Network:
        return Network(
            grid=Grid(len(self.layers)),
            layers={Coord(z): spec for z, spec in enumerate(self.layers)},
            input_shape=() if self.row is None else self.row,
            input_dtype="int32" if self.row is None else "float32",
        )

    def student(self) -> Params:
        return initialise(self.network, seed=1)

    def teacher(self) -> Params:
        rng = np.random.default_rng(2)
        moved = {k: s.values() + self.spread * rng.standard_normal(s.shape) for k, s in self.student().items()}
        return Params({key: WeightStore.from_array(w.astype(np.float32)) for key, w in moved.items()})

    def batch(self) -> Batch:
        """Inputs and the teacher's answers."""
        rng = np.random.default_rng(3)
        lead = (SAMPLES,) if self.rows is None else (SAMPLES, self.rows)
        if self.row is None:
            x = rng.integers(0, 7, lead).astype(np.int32)
        else:
            x = rng.standard_normal((*lead, *self.row)).astype(np.float32)
        plan = lower(self.network)
        teacher = ReferenceDevice().compile(plan, self.teacher(), RunOptions())
        samples = [x] if self.rows is None else list(x)
        answers = [teacher.forward(teacher.new_state(), sample, last_only=False) for sample in samples]
        return Batch(x, answers[0] if self.rows is None else np.stack(answers))


def learn(*layers: LayerSpec, **fields: Any) -> Task:
    """The task of layers, one after the other."""
    return Task(layers=layers, **fields)
