"""In NumPy: a step of a program around its dispatch: the rows that edges read, and what regions keep. In NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.oracles.base import Arrays
from tests.oracles.program.carriers import bound, denoised, filtered, own, remembered
from tests.oracles.program.dispatch import Dispatched
from tests.oracles.program.meters import updated
from volumetric.base._typing import Array
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.program_facts import METERED, Facts, Place
from volumetric.program.layer.program_params import AGE, longest_lags, metered_by


@dataclass(slots=True)
class Held:
    """What a program keeps, for one step: `states` are replaced as the step goes.

    Attributes
    ----------
    fires : which regions fire in which stream, bool ``[B, regions]``
    """

    facts: Facts
    p: Arrays
    states: dict[str, Array]
    fires: Array

    def rows(self, canvas: Array) -> dict[tuple[int, int], Array]:
        """Return the rows that edges read, by region and steps back, and keep them for later steps.

        Slots are bound to what their region holds where it fires; those that do not persist, always.
        """
        found = {(place.index, 0): self._now(place, canvas) for place in self.facts.places}
        back = longest_lags(self.facts)
        for number, most in back.items():
            name = f"{self.facts.places[number].name}.past"
            now, past = found[number, 0][:, None], self.states[name]
            first = (self.states[AGE] == 0)[..., None, None]
            past = np.where(first, now, past)  # before the first step there was what is there
            found |= {(number, k + 1): past[:, k] for k in range(most)}
            self.states[name] = np.concatenate([now, past[:, :-1]], axis=1)
        return found

    def present(self) -> Array:
        """Return which edges find what they read in which stream, bool ``[B, edges]``.

        In the first steps edges with a lag do not, unless they take the nearest there is (``"lerp"``). It has to be
        asked before `grow`.
        """
        found = np.ones((len(self.fires), len(self.facts.wires)), np.bool_)
        for task in tasks_of(self.facts):
            back = task.source[1]
            if back and task.wire.edge.fill != "lerp":
                found[:, task.wire.index] = self.states[AGE][:, 0] >= back
        return found

    def grow(self) -> None:
        """Count the step."""
        if AGE in self.states:
            most = max(longest_lags(self.facts).values())
            self.states[AGE] = np.minimum(self.states[AGE] + 1, self.states[AGE].dtype.type(most))

    def settle(
        self, before: Array, made: Dispatched, levels: dict[int, tuple[Array, Array]] | None = None
    ) -> tuple[Array, dict[int, Array]]:
        """Let regions take what edges brought; return the canvas, and the errors of regions ``[B, N, d]``.

        The error of a filter is what it corrects, of a residual region what it holds, where it was written; of any
        other region that has a meter, how far the step moves it. Programs with parity have `measure_read` instead.

        Parameters
        ----------
        before : the canvas that edges read
        levels : diffusive region → noise levels ᾱ before and behind the step, ``[B]``
        """
        canvas, errors = made.canvas.copy(), dict[int, Array]()
        for place in self.facts.places:
            at, fires = place.positions, self.fires[:, place.index]
            x, z, written = before[:, at], made.canvas[:, at], made.written[:, at] & fires[:, None]
            error = z - x
            if place.carrier == "filter":
                y, error = filtered(own(self.p, place), x, z, written)
                canvas[:, at] = np.where(fires[:, None, None], y, canvas[:, at])
            elif place.carrier == "diffusive" and levels and place.index in levels:
                y = denoised(x, z, *levels[place.index])
                canvas[:, at] = np.where((written & fires[:, None])[..., None], y, canvas[:, at])
            elif place.carrier == "residual":
                error = np.where(written[..., None], z, z.dtype.type(0))
            elif place.carrier == "memory":
                self._remember(place, z, written)
            if (place.meter is not None and not self.facts.program.parity) or place.carrier in METERED:
                errors[place.index] = error
        return canvas, errors

    def measure(self, errors: dict[int, Array]) -> None:
        """Let meters take errors, where their region fires."""
        for number, error in errors.items():
            place = self.facts.places[number]
            if place.meter is not None:
                name = f"{place.name}.meter"
                self.states[name] = updated(place.meter, self.states[name], error, self.fires[:, number])

    def measure_read(self, results: dict[int, Array], before: Array, live: Array) -> None:
        """Let meters of a program with parity take what it takes for errors.

        For each edge that reads a region of carrier ``"residual"``, without a lag: what it brings less its queries.
        """
        for task in tasks_of(self.facts):
            place = self.facts.places[task.wire.reads]
            if metered_by(task, place) and task.wire.index in results and place.meter is not None:
                error = results[task.wire.index] - before[:, task.place.positions]
                name = f"{place.name}.meter"
                on = live[:, task.wire.index] != 0
                self.states[name] = updated(place.meter, self.states[name], error, on)

    def _now(self, place: Place, canvas: Array) -> Array:
        p, batch, values = own(self.p, place), len(canvas), canvas[:, place.positions]
        identity = place.region.identity
        if identity is None:
            return values if place.through != "memory" else self.states[f"{place.name}.values"]
        learned = np.broadcast_to(p["slots"], (batch, *p["slots"].shape))
        heads = self.facts.program.heads
        if identity.mode == "ephemeral":
            return bound(p, heads, learned, values)
        name = f"{place.name}.slots"
        held = learned + self.states[name]
        fires = self.fires[:, place.index][:, None, None]
        now = bound(p, heads, held, values)
        self.states[name] = np.where(fires, now - learned, self.states[name])
        return np.where(fires, now, held)

    def _remember(self, place: Place, z: Array, written: Array) -> None:
        p, name, fires = own(self.p, place), place.name, self.fires[:, place.index][:, None, None]
        before = {of: self.states[f"{name}.{of}"] for of in ("keys", "values")}
        keys, values = remembered(p, p["memory.keys"] + before["keys"], before["values"], z, written)
        for of, now in (("keys", keys - p["memory.keys"]), ("values", values)):
            self.states[f"{name}.{of}"] = np.where(fires, now, before[of])
