"""In NumPy: a program in NumPy, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.base import Arrays, Saved
from tests.oracles.memory import Memory, covering, start_of
from tests.oracles.program.constants import put_in
from tests.oracles.program.diffusion import diffused, noise_in
from tests.oracles.program.dispatch import dispatch
from tests.oracles.program.ends import handed_out, happening, levels_at, taken_in
from tests.oracles.program.meters import shown
from tests.oracles.program.recipes import Seen, hidden_in, masked, penalty
from tests.oracles.program.settle import Held
from tests.oracles.program.watched import watch
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.layers.clock import Event
from volumetric.layers.clock_steps import NumpyClockOps, step
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.recipes import recipe_of
from volumetric.program.layer.timing import CANVAS, CLOCK, all_states, meter_at, timing_of


def run(spec: Any, p: Arrays, x: Array, memory: Memory | None, training: Training | None = None) -> tuple[Array, Saved]:
    """Return the rows of all outputs, and what gradients are computed from.

    In a pass of training what regions lose of their own is added to its penalties.
    """
    facts: Facts = spec.facts
    *lead, length, width = x.shape
    covered, keep = covering(memory, x.shape)
    streams = int(np.prod(lead, dtype=np.int64))
    rows = x.reshape(streams, length, width)
    kept = None if keep is None else keep.reshape(streams, length)
    states: dict[str, Array] = {}
    for name, shape in all_states(facts).items():
        states[name] = start_of(covered, name, (*lead, *shape), x.dtype).reshape(streams, *shape)
    saved: Saved = {"x": x, "p": dict(p), "kept": kept, "states": dict(states), "streams": streams}
    machine = Machine(facts, p, states, watched=spec.watched)
    hidden, noise = dict[int, Array](), dict[int, Array]()
    if training is not None:
        noise = noise_in(facts, streams, length, training)
        learning = any(map(recipe_of, facts.places))
        if learning:
            machine.penalty = np.zeros(streams, x.dtype)
            hidden = hidden_in(facts, streams, length, training)
        if learning or noise:
            saved["training"] = training
    made: list[Array] = []
    for t in range(length):
        machine.hidden = {number: of[:, t] for number, of in hidden.items()}
        machine.noise = {number: of[:, t] for number, of in noise.items()}
        made.append(machine.row(rows[:, t], None if kept is None else kept[:, t]))
    if training is not None and machine.penalty is not None:
        training.penalties[training.path] = machine.penalty.sum()
    size = spec.output_shape(x.shape)[-1]
    y = np.stack(made, 1) if made else np.zeros((streams, 0, size), x.dtype)
    if covered is not None and length:
        for name, value in machine.states.items():
            covered.write(name, value.reshape(*lead, *value.shape[1:]))
    return y.reshape(*lead, length, size), saved


class Machine:
    """Streams of a program side by side.

    Attributes
    ----------
    states : ``[B, …]``, as `timing.all_states` names them
    fires : which regions fired in the last row, bool ``[B, regions]``
    live : which edges were computed in it, bool ``[B, edges]``
    acted : how often they were, ``[B, edges]``
    hidden : region → which of its positions training hides in the next row, bool ``[B, N]``
    noise : region → ε that training puts on what it holds, in the next row, ``[B, N, d]``
    penalty : what regions lose of their own, ``[B]``; None: nobody asks
    """

    def __init__(self, facts: Facts, p: Arrays, states: dict[str, Array], *, watched: bool = False) -> None:
        self.facts, self.p, self.states, self.watched = facts, p, states, watched
        self.timing = timing_of(facts)
        self.fires = self.live = np.zeros((0, 0), np.bool_)
        self.acted = np.zeros((0, 0), np.int64)
        self.hidden: dict[int, Array] = {}
        self.noise: dict[int, Array] = {}
        self.penalty: Array | None = None

    def row(self, x: Array, keep: Array | None = None) -> Array:
        """Take a row ``[B, columns]`` in, compute, and hand a row out; where `keep` is 0 a stream begins anew."""
        facts, states = self.facts, self.states
        if keep is not None:
            for name, of in states.items():
                states[name] = np.where(keep.reshape(-1, *(1,) * (of.ndim - 1)) != 0, of, of.dtype.type(0))
        truths = self._truths(x)
        always = np.ones(len(x), np.bool_)
        fires = np.stack([always if n < 0 else truths[n] for n in self.timing.regions], 1)
        whens = [always if n < 0 else truths[n] for n in self.timing.edges]
        when = np.stack(whens, 1) if whens else np.ones((len(x), 0), np.bool_)
        self.fires, self.live, self.acted = fires, np.zeros_like(when), np.zeros(when.shape, np.int64)
        canvas = taken_in(facts, self.p, states[CANVAS], x, fires)
        apart = put_in(facts, self.p, canvas, states)
        past = {name: of for name, of in states.items() if name.endswith(".past")}
        behind = past
        for again in range(1 + max(self.timing.inner)):
            now = fires & (np.array(self.timing.inner) >= again)
            states |= past
            canvas = self._step(canvas, now, when, levels_at(facts, x, again), again)
            if not again:
                behind = {name: states[name] for name in past}
        states |= behind
        Held(facts, self.p, states, fires).grow()
        states[CANVAS] = canvas
        out = handed_out(facts, self.p, canvas, states)
        if self.watched:
            computed = fires * (1 + np.array(self.timing.inner))
            out = np.concatenate([out, watch(facts, computed, self.acted, canvas, states)], axis=1)
        for name in apart:
            del states[name]
        return out

    def _truths(self, x: Array) -> list[Array]:
        """Return where each clock fires, bool ``[B]``."""
        facts, found, at = self.facts, list[Array](), 0

        def watched(source: str) -> Array:
            number, kind = meter_at(facts, Event(source, above=0.0))
            place = facts.places[number]
            assert place.meter is not None
            return shown(place.meter, self.states[f"{place.name}.meter"])[:, kind]

        for clock, starts in zip(self.timing.clocks, self.timing.starts, strict=True):
            held = self.states[CLOCK][:, at : at + len(starts)] if starts else np.zeros((len(x), 0), x.dtype)
            counts = [held[:, n] + x.dtype.type(start) for n, start in enumerate(starts)]
            truth, after = step(clock, counts, NumpyClockOps(watched, lambda name: happening(facts, x, name)))
            if starts:
                now = self.states[CLOCK].copy()
                now[:, at : at + len(starts)] = np.stack(after, 1) - np.array(starts, x.dtype)
                self.states[CLOCK] = now
            found.append(truth)
            at += len(starts)
        return found

    def _step(
        self, canvas: Array, fires: Array, when: Array, levels: dict[int, tuple[Array, Array]], again: int
    ) -> Array:
        facts, held = self.facts, Held(self.facts, self.p, self.states, fires)
        whole, before = canvas, dict(self.states)
        if self.noise and not again:
            canvas = diffused(facts, canvas, self.noise, {number: of[0] for number, of in levels.items()}, fires)
        canvas = masked(facts, self.p, canvas, self.hidden) if self.hidden and not again else canvas
        told = held.rows(canvas)
        writes = np.array([wire.writes for wire in facts.wires], np.int64)
        live = fires[:, writes] & when & held.present()
        self.live, self.acted = self.live | live, self.acted + live
        made = dispatch(facts, self.p, canvas, lambda number, back: told[number, back], live)
        after, errors = held.settle(canvas, made, levels)
        if facts.program.parity:
            held.measure_read(made.results, canvas, live)
        else:
            held.measure(errors)
        if self.penalty is not None and not again:
            seen = Seen(
                whole=whole,
                before=canvas,
                brought=made.canvas,
                after=after,
                written=made.written,
                errors=errors,
                fires=fires,
                hidden=self.hidden,
            )
            self.penalty = self.penalty + penalty(facts, self.p, seen, before, self.states)
        return after
