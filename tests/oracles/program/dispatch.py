"""In NumPy: dispatch: what all edges that fire write, from the canvas as it was before the step. In NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracles.base import Arrays, oracle
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.activations import sigmoid
from volumetric.program.layer.dispatch_plan import positions_kept
from volumetric.program.layer.edge_tasks import EdgeTask, gate_of, names_of, tasks_of
from volumetric.program.layer.program_facts import Facts


@dataclass(frozen=True, eq=False, slots=True)
class Dispatched:
    """What a dispatch leaves.

    Attributes
    ----------
    canvas : ``[B, positions, d]``
    written : which positions some edge has written, bool ``[B, positions]``
    results : edge → what it brought, ``[B, written, d]``; not of edges that did not fire in any stream
    """

    canvas: Array
    written: Array
    results: dict[int, Array]


Told = Callable[[int, int], Array]
"""Number of a region, and how many steps back → its rows as edges read them, ``[B, rows, d]``."""


def dispatch(facts: Facts, p: Arrays, canvas: Array, told: Told | None = None, live: Array | None = None) -> Dispatched:
    """Let edges read, and write what they have read.

    For a position, over the edges that write it and fire, with ``a`` what an edge brings:

    - ``add``: ``x' = Σ w a / Σ w``, on top of x where the region keeps it (`Region.keeps_old`);
    - ``gate``: ``x' ← x' + Σ σ(g) a``, x' being x where no edge adds;
    - ``replace``: ``x' = a`` of the last one in the order of edges, whatever else there is.

    Positions that nothing writes stay. A residual region holds an error: the mean of what edges bring that read
    observations, less the mean of what the others bring, which is taken for a prediction; a side that has no edge is 0.

    Parameters
    ----------
    p : parameters, as `tasks.params_of` names them
    canvas : ``[B, positions, d]``
    told : rows that edges read; None: positions of the canvas
    live : which edges fire in which stream, bool ``[B, edges]``; None: all do
    """
    state = _State(facts, canvas)
    results: dict[int, Array] = {}
    for task in tasks_of(facts):
        on = np.ones(len(canvas), np.bool_) if live is None else live[:, task.wire.index] != 0
        if not on.any():
            continue
        source = _read(facts, task, canvas, told)
        made = results[task.wire.index] = _result(facts, task, p, canvas, source)
        state.write(task, p, made, on)
    return Dispatched(*state.ended(), results)


def _read(facts: Facts, task: EdgeTask, canvas: Array, told: Told | None) -> Array:
    rows, back = task.source
    if told is not None:
        return told(rows, back)
    place = facts.places[rows]
    if back or place.through != "positions":
        raise SpecError(f"rows of region {place.name!r}, {back} steps back, are missing")
    return canvas[:, place.positions]


def _result(facts: Facts, task: EdgeTask, p: Arrays, canvas: Array, source: Array) -> Array:
    """Sums of what the parts of an edge bring, each with its share; 0 where nothing is written."""
    own = {name: p[there] for name, there in names_of(facts, task).items()}
    queries = canvas[:, task.place.positions]
    made = np.zeros_like(queries)
    for part in task.parts:
        y = oracle(task.rule).forward(own, queries[:, part.written], source[:, part.read], part.pairs)
        made[:, part.written] += made.dtype.type(part.share) * y
    return made


class _State:
    """What positions have got so far."""

    def __init__(self, facts: Facts, canvas: Array) -> None:
        self.facts, self.canvas = facts, canvas
        flat = canvas.shape[:2]
        # Sums of what is added, and of weights: first of all edges, then of those that bring predictions.
        self.added = np.zeros((2, *canvas.shape), canvas.dtype)
        self.weight = np.zeros((2, *flat), canvas.dtype)
        self.gated, self.gates = np.zeros_like(canvas), np.zeros(flat, np.bool_)
        self.replaced, self.by_last = np.zeros_like(canvas), np.zeros(flat, np.bool_)

    def write(self, task: EdgeTask, p: Arrays, made: Array, on: Array) -> None:
        """Add what an edge brings, in the streams where it is on."""
        at, dtype = task.place.positions, made.dtype
        flags = np.logical_and.outer(on, task.shares > 0)
        there, shares = flags[:, :, None], np.where(task.shares > 0, task.shares, 1).astype(dtype)
        if task.wire.write == "add":
            weight, side = dtype.type(task.wire.weight), int(task.is_prediction)
            self.added[side][:, at] += np.where(there, weight * made, 0)
            self.weight[side][:, at] += flags * weight * shares
            return
        made = made / shares[:, None]
        if task.wire.write == "gate":
            self.gated[:, at] += np.where(there, sigmoid(p[gate_of(task)]) * made, 0)
            self.gates[:, at] |= flags
        else:
            self.replaced[:, at] = np.where(there, made, self.replaced[:, at])
            self.by_last[:, at] |= flags

    def ended(self) -> tuple[Array, Array]:
        """Return the canvas, and what was written."""
        x, zero = self.canvas, self.canvas.dtype.type(0)
        means = self.added / np.where(self.weight > 0, self.weight, 1)[..., None]
        observed, predicted = self.weight[0] > 0, self.weight[1] > 0
        has = np.logical_or(observed, predicted)
        kept = np.logical_and(observed, positions_kept(self.facts))
        lost = self.gates & ~has if self.facts.program.parity else np.zeros_like(has)
        base = means[0] - means[1] + np.where(kept[:, :, None], x, zero)
        base = np.where(has[:, :, None], base, np.where(lost[:, :, None], zero, x))
        made = np.where(self.by_last[:, :, None], self.replaced, base + self.gated)
        return made, has | self.gates | self.by_last
