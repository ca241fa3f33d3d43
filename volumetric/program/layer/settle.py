"""A step of a program around its dispatch: the rows that edges read, and the states of regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.weighted_rows import weigh_rows
from volumetric.program.layer.carriers import (
    bind_slots,
    follow_meter,
    select_flagged,
    step_denoising,
    step_filter,
    step_memory,
    update_meter,
)
from volumetric.program.layer.edge_dispatch import Dispatched
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.emit_clocks import follow_together, metered_alike
from volumetric.program.layer.program_facts import METERED, Facts, Place
from volumetric.program.layer.program_params import AGE, constants_of, longest_lags, metered_by, rows_of

New: TypeAlias = "tuple[Place, int, int, int | None]"
"""A region, its new rows, its old rows, and a mask: ``[B, 1 or N, 1]`` of 0 and 1, None: all new."""


@dataclass(slots=True, kw_only=True)
class RegionStep:
    """States of a program during one step, which replaces `states`.

    Attributes
    ----------
    p : parameters by name
    states : ``[B, …]``, by the names of `parameters.states_of`
    fires : region → whether it fires in a stream, ``[B, 1]`` of 0 and 1; missing regions always fire
    predicate : context for nodes that can be skipped if none of the passed regions fires in any stream
    learns : whether gradients are needed
    """

    work: GraphBuilder
    facts: Facts
    p: Mapping[str, int]
    states: dict[str, int]
    fires: Mapping[int, int]
    predicate: Callable[..., AbstractContextManager[None]]
    learns: bool = True

    def rows(self, canvas: int) -> dict[tuple[int, int], int]:
        """Emit the rows that edges read other than current positions of the canvas, by region and steps back."""
        rows: dict[tuple[int, int], int] = {}
        back = longest_lags(self.facts)
        for place in self.facts.places:
            if place.through != "positions":
                rows[place.index, 0] = self._current_rows(place, canvas)
            if place.index in back:
                now = rows[place.index, 0] if (place.index, 0) in rows else self.region_values(canvas, place)
                rows |= self._past_rows(place, now, back[place.index])
        return rows

    def constants(self, batch: int) -> list[tuple[Place, int]]:
        """Emit the rows of constants that are positions, ``[B, N, d]``; the others become `states` of the row."""
        constants: list[tuple[Place, int]] = []
        for place in constants_of(self.facts):
            rows = self.p[rows_of(place.name)]
            count, d = self.work.shape(rows)
            whole = self.work.broadcast(self.work.reshape(rows, (1, count, d)), (batch, count, d))
            if place.through == "positions":
                constants.append((place, whole))
            else:
                self.states[f"{place.name}.values"] = whole
        return constants

    def read_flags(self) -> dict[int, int]:
        """Emit whether past rows exist for edges with a lag, ``[B, 1]`` of 0 and 1; call it before `grow`."""
        flags: dict[int, int] = {}
        for task in tasks_of(self.facts):
            back = task.source[1]
            if back and task.wire.edge.fill != "lerp":
                least = self.work.scalar(back - 0.5)
                flags[task.wire.index] = self.work.binary("greater", self.states[AGE], least)
        return flags

    def count_step(self) -> None:
        """Count the step."""
        if AGE in self.states:
            most = self.work.scalar(float(max(longest_lags(self.facts).values())))
            self.states[AGE] = self.work.binary("min", self.work.affine(self.states[AGE], 1.0, 1.0), most)

    def settle(
        self, before: int, dispatched: Dispatched, levels: Mapping[int, tuple[int, int]] | None = None
    ) -> tuple[int, dict[int, int]]:
        """Emit the canvas after the step, and the errors of regions with a meter, ``[B, N, d]``.

        Batched meters have already used their errors, which no loss needs.

        Parameters
        ----------
        before : canvas that edges read, ``[B, positions, d]``
        levels : diffusive region → noise levels before and after the step, ``[B, 1, 1]``
        """
        work, errors, new = self.work, dict[int, int](), list[New]()
        side_by_side = work.parted and not self.facts.program.parity
        alike = metered_alike(self.facts, self.fires) if side_by_side else []
        for places in alike:
            follow_together(work, places, self.states, (before, dispatched.canvas), self.fires, self.predicate)
        done = {place.index for places in alike for place in places}
        for place in self.facts.places:
            if place.index in done:
                continue
            metered = place.meter is not None and not self.facts.program.parity
            diffused = place.carrier == "diffusive" and levels is not None and place.index in levels
            if not metered and place.carrier not in (*METERED, "memory") and not diffused:
                continue
            # Values that are also read below if the region does not fire are emitted outside of its guard.
            flag, written = self._flag(place, 3), self.region_values(dispatched.written, place)
            written = written if flag is None else work.binary("mul", written, flag)
            with self.predicate(place.index) if place.carrier == "deterministic" else nullcontext():
                x, z = self.region_values(before, place), self.region_values(dispatched.canvas, place)
            with self.predicate(place.index):
                error = work.binary("sub", z, x)
                if place.carrier == "filter":
                    y, error = step_filter(work, self.region_params(place), x, z, written)
                    new.append((place, y, z, flag))
                elif diffused and levels is not None:
                    y = step_denoising(work, x, z, *levels[place.index])
                    new.append((place, y, z, written))
                elif place.carrier == "residual":
                    error = work.binary("mul_nonzero", z, written)
            if place.carrier == "memory":
                self._update_memory(place, z, written)
            if metered or place.carrier in METERED:
                errors[place.index] = error
        if self.learns or all(flag is None for *_, flag in new):
            return self.place_values(
                dispatched.canvas, [(place, select_flagged(work, flag, y, z)) for place, y, z, flag in new]
            ), errors
        return self._blend_rows(dispatched.canvas, new), errors

    def measure(self, errors: Mapping[int, int]) -> None:
        """Update meters with errors, if their region fires."""
        for number, error in errors.items():
            place = self.facts.places[number]
            if place.meter is not None:
                name = f"{place.name}.meter"
                with self.predicate(number):
                    meter_state = follow_meter(self.work, place.meter, self.states[name], error)
                self.states[name] = select_flagged(self.work, self.fires.get(number), meter_state, self.states[name])

    def measure_read(self, results: Mapping[int, int], before: int, live: Mapping[int, int]) -> None:
        """Update meters of a program with parity with the edges' results minus their queries.

        Parameters
        ----------
        results : edge → its result, ``[B, written, d]``
        live : edge → whether it fires, ``[B, 1]``; missing edges always fire
        """
        for task in tasks_of(self.facts):
            place = self.facts.places[task.wire.reads]
            if metered_by(task, place) and place.meter is not None:
                name, number = f"{place.name}.meter", task.wire.index
                error = self.work.binary("sub", results[number], self.region_values(before, task.place))
                self.states[name] = update_meter(self.work, place.meter, self.states[name], error, live.get(number))

    def region_params(self, place: Place) -> dict[str, int]:
        """Return the parameters of a region by their names within it."""
        start = f"regions.{place.name}."
        return {name.removeprefix(start): i for name, i in self.p.items() if name.startswith(start)}

    def _flag(self, place: Place, axes: int) -> int | None:
        """Emit whether a region fires, reshaped to a number of axes."""
        flag = self.fires.get(place.index)
        if flag is None:
            return None
        return self.work.reshape(flag, (self.work.shape(flag)[0], *[1] * (axes - 1)))

    def region_values(self, x: int, place: Place) -> int:
        """Emit the positions of a region."""
        work = self.work
        batch, count, d = work.shape(x)
        at = place.positions
        if len(at) and int(at[-1]) - int(at[0]) + 1 == len(at):
            return work.part(x, 1, int(at[0]), int(at[-1]) + 1)
        ids = (np.arange(batch)[:, None] * count + at).reshape(-1).astype(np.int32)
        rows = work.gather_rows(work.reshape(x, (batch * count, d)), work.constant(ids, "positions"))
        return work.reshape(rows, (batch, len(at), d))

    def place_values(self, canvas: int, new: list[tuple[Place, int]]) -> int:
        """Emit the canvas with new rows of regions; for positions in several regions the last one wins."""
        if not new:
            return canvas
        work = self.work
        if not self.learns:  # in one pass over the canvas
            return self._blend_rows(canvas, [(place, rows, rows, None) for place, rows in new])
        batch, count, d = work.shape(canvas)
        from_ = np.arange(batch * count).reshape(batch, count)
        parts, at = [work.reshape(canvas, (batch * count, d))], batch * count
        for place, rows in new:
            n = len(place.positions)
            from_[:, place.positions] = at + np.arange(batch * n).reshape(batch, n)
            parts.append(work.reshape(rows, (batch * n, d)))
            at += batch * n
        ids = work.constant(from_.reshape(-1).astype(np.int32), "canvas")
        return work.reshape(work.gather_rows(work.concat(parts, 0), ids), (batch, count, d))

    def _blend_rows(self, canvas: int, new: Sequence[New]) -> int:
        """Emit the canvas with new rows of regions whose flags are 1."""
        work = self.work
        batch, count, d = work.shape(canvas)
        terms = 1 if all(flag is None for *_, flag in new) else 2
        ids = np.arange(batch * count, dtype=np.int32).reshape(batch, count, 1).repeat(terms, axis=2)
        order, at, far = np.zeros((batch, count), np.int32), 1, batch * count
        weights = [work.constant(np.eye(1, terms), "weights")]  # of positions that do not change
        for place, _, _, flag in new:
            n = len(place.positions)
            rows = np.arange(batch * n).reshape(batch, n)
            ids[:, place.positions, -1] = far + rows
            far += batch * n
            if flag is None and terms == 1:
                continue
            on = work.broadcast(work.reshape(work.scalar(1.0), (1, 1, 1)) if flag is None else flag, (batch, n, 1))
            weights.append(work.reshape(work.concat((work.affine(on, -1.0, 1.0), on), 2), (batch * n, 2)))
            order[:, place.positions] = at + rows
            at += batch * n
        if terms == 1:
            by = work.constant(np.ones((batch * count, 1)), "weights")
        else:
            by = work.gather_rows(work.concat(weights, 0), work.constant(order.reshape(-1), "order"))
        new_rows = work.concat([work.reshape(y, (batch * len(place.positions), d)) for place, y, _, _ in new], 0)
        near = work.reshape(canvas, (batch * count, d))
        numbers = work.constant(ids.reshape(-1, terms), "rows")
        return work.reshape(weigh_rows(work, near, new_rows, numbers, by), (batch, count, d))

    def _past_rows(self, place: Place, now: int, most: int) -> dict[tuple[int, int], int]:
        """Emit the rows of the last steps, and store the current ones."""
        work, name = self.work, f"{place.name}.past"
        batch, rows, d = work.shape(now)
        one = work.reshape(now, (batch, 1, rows, d))
        older = work.reshape(work.binary("greater", self.states[AGE], work.scalar(0.0)), (batch, 1, 1, 1))
        past = select_flagged(work, older, self.states[name], work.broadcast(one, (batch, most, rows, d)))
        self.states[name] = work.concat((one, work.part(past, 1, 0, most - 1)), 1) if most > 1 else one
        return {(place.index, k + 1): work.reshape(work.part(past, 1, k, k + 1), (batch, rows, d)) for k in range(most)}

    def _current_rows(self, place: Place, canvas: int) -> int:
        """Emit the rows of a memory, or slots."""
        work, identity = self.work, place.region.identity
        if identity is None:
            return self.states[f"{place.name}.values"]
        p, (batch, _, d) = self.region_params(place), work.shape(canvas)
        learned = work.reshape(p["slots"], (1, identity.capacity, d))
        heads, values = self.facts.program.heads, self.region_values(canvas, place)
        if identity.mode == "ephemeral":
            return bind_slots(work, p, heads, work.broadcast(learned, (batch, identity.capacity, d)), values)
        name, flag = f"{place.name}.slots", self._flag(place, 3)
        slots = work.add(learned, self.states[name])
        with self.predicate(place.index):
            now = bind_slots(work, p, heads, slots, values)
            moved = work.binary("sub", now, learned)
        self.states[name] = select_flagged(work, flag, moved, self.states[name])
        return select_flagged(work, flag, now, slots)

    def _update_memory(self, place: Place, z: int, written: int) -> None:
        work, p, name, flag = self.work, self.region_params(place), place.name, self._flag(place, 3)
        learned = work.reshape(p["memory.keys"], (1, *work.shape(p["memory.keys"])))
        before = {of: self.states[f"{name}.{of}"] for of in ("keys", "values")}
        with self.predicate(place.index):
            keys, values = step_memory(work, p, work.add(learned, before["keys"]), before["values"], z, written)
            keys = work.binary("sub", keys, learned)
        for of, now in (("keys", keys), ("values", values)):
            self.states[f"{name}.{of}"] = select_flagged(work, flag, now, before[of])
