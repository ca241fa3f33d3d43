"""What positions become of what edges bring, for regions of a kind side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volumetric._typing import Array
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.rules.program_attention import stacked
from volumetric.runtime.graph.rules.program_plan import Plan, Slot, Target

Factor: TypeAlias = "Array | int"
"""Numbers that are known when the graph is written, or a tensor of them; ``[targets, B or 1, positions, 1]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Targets of a kind, as they are written. Tensors are ``[targets, B, positions, d]``.

    Attributes
    ----------
    x : what positions hold
    brought : gives rows that edges bring, by their numbers; the last one is zeros
    ends : first row of each group, and the row of zeros
    flags : gives which edges fire, ``[targets, B, 1, 1]``, or None: all do
    gates : gives the gates of slots, ``[targets]``
    """

    work: GraphBuilder
    plan: Plan
    targets: Sequence[Target]
    x: int
    brought: Callable[[Array], int]
    ends: Array
    flags: Callable[[Sequence[Slot]], int | None]
    gates: Callable[[Sequence[Slot]], list[int]]

    def emit(self) -> tuple[int, Factor]:
        """Emit new values, and where some edge has written."""
        observed, predicted, gates = self._mean("observed"), self._mean("predicted"), self._gated()
        # x stays where nothing is added, and where what is added comes on top of it.
        written: Factor = np.zeros((1, 1, 1, 1))
        for side in (observed, predicted):
            written = written if side is None else self._most(written, side[1])
        stays = self._rest(written)
        if gates is not None and self.plan.facts.program.parity:
            stays = self._times(stays, self._rest(gates[1]))
        if observed is not None:
            kept = np.stack([target.kept for target in self.targets]).astype(np.float64)[:, None, :, None]
            stays = self._most(stays, self._times(kept, observed[1]))
        terms = [self._masked(self.x, stays), None if observed is None else observed[0]]
        if predicted is not None:
            terms.append(self.work.unary(predicted[0], "neg"))
        if gates is not None:
            terms.append(gates[0])
            written = self._most(written, gates[1])
        for number in self._slots("replace"):
            flag = self._flag(number)
            terms = [self._masked(self._sum(terms), self._rest(flag)), self._masked(self._value(number), flag)]
            written = self._most(written, flag)
        return self._sum(terms), written

    def result(self, number: int) -> int:
        """Emit what a slot brings, ``[targets, B, positions, d]``, 0 where it does not fire."""
        return self._value(number, np.ones((1, 1, 1, 1)))

    def _slots(self, way: str) -> list[int]:
        """Numbers of the slots of a kind."""
        return [number for number, slot in enumerate(self.targets[0].slots) if slot.way == way]

    def _mean(self, way: str) -> tuple[int, Factor] | None:
        """Emit the weighted mean of what edges add, and where there is any."""
        numbers = self._slots(way)
        if not numbers:
            return None
        weights = [
            np.array([target.slots[number].task.wire.weight for target in self.targets])[:, None, None, None]
            for number in numbers
        ]
        den: Factor = np.zeros((1, 1, 1, 1))
        for number, weight in zip(numbers, weights, strict=True):
            den = self._plus(den, self._live(number, self._shares(number) * weight))
        if isinstance(den, int):
            has = self.work.binary("greater", den, self.work.scalar(0.0))
            total = [self._value(number, weight) for number, weight in zip(numbers, weights, strict=True)]
            below = self.work.add(den, self.work.affine(has, -1.0, 1.0))
            return self.work.binary("div", self._sum(total), below), has
        below = np.where(den > 0, den, 1)
        total = [self._value(number, weight / below) for number, weight in zip(numbers, weights, strict=True)]
        return self._sum(total), (den > 0).astype(np.float64)

    def _gated(self) -> tuple[int, Factor] | None:
        """Emit what comes through gates, and where."""
        work, total, some = self.work, list[int | None](), np.zeros((1, 1, 1, 1))
        for number in self._slots("gate"):
            gates = self.gates([target.slots[number] for target in self.targets])
            opened = work.reshape(work.unary(stacked(work, gates), "sigmoid"), (len(gates), 1, 1, 1))
            flag = self._flag(number)
            made = self._masked(self._value(number), flag)
            total.append(None if made is None else work.binary("mul", made, opened))
            some = self._most(some, flag)
        return (self._sum(total), some) if total else None

    def _value(self, number: int, weight: Array | None = None) -> int:
        """Emit what a slot brings times a weight, 0 where it is not; without a weight it is a mean of its parts."""
        made: list[int | None] = []
        shares = self._shares(number)
        for k in range(len(self.targets[0].slots[number].layers)):
            layers = [target.slots[number].layers[k] for target in self.targets]
            factor = np.stack([layer.share for layer in layers])[:, None, :, None]
            factor = factor / np.where(shares > 0, shares, 1) if weight is None else factor * weight
            y = self._rows(number, k)
            made.append(self._masked(y, factor if weight is None else self._live(number, factor)))
        return self._sum(made)

    def _rows(self, number: int, k: int) -> int:
        batch = self.work.shape(self.x)[1]
        groups = self.plan.groups
        of_edge = np.array([group.rows(batch) // len(group.tasks) for group in groups])
        ids: list[Array] = []
        for target in self.targets:
            layer = target.slots[number].layers[k]
            first = self.ends[layer.group] + layer.edge * of_edge[layer.group] + layer.first
            own = first + np.arange(batch)[:, None] * layer.step
            ids.append(np.where(layer.group < 0, self.ends[-1], own))
        return self.brought(np.stack(ids))

    def _shares(self, number: int) -> Array:
        return np.stack([target.slots[number].shares for target in self.targets])[:, None, :, None]

    def _flag(self, number: int) -> Factor:
        return self._live(number, (self._shares(number) > 0).astype(np.float64))

    def _live(self, number: int, factor: Array) -> Factor:
        """Numbers, 0 where the edges do not fire."""
        live = self.flags([target.slots[number] for target in self.targets])
        return factor if live is None else self.work.binary("mul", self._tensor(factor), live)

    def _tensor(self, of: Factor) -> int:
        return of if isinstance(of, int) else self.work.constant(np.asarray(of, np.float64), "factor")

    def _rest(self, of: Factor) -> Factor:
        return self.work.affine(of, -1.0, 1.0) if isinstance(of, int) else 1 - of

    def _times(self, a: Factor, b: Factor) -> Factor:
        if isinstance(a, int) or isinstance(b, int):
            known = a if not isinstance(a, int) else b
            if not isinstance(known, int) and not known.any():
                return np.zeros((1, 1, 1, 1))
            return self.work.binary("mul", self._tensor(a), self._tensor(b))
        return a * b

    def _plus(self, a: Factor, b: Factor) -> Factor:
        if isinstance(a, int) or isinstance(b, int):
            if not isinstance(a, int) and not a.any():
                return b
            return self.work.add(self._tensor(a), self._tensor(b))
        return a + b

    def _most(self, a: Factor, b: Factor) -> Factor:
        """The larger of numbers that are 0 or 1."""
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, int) and not one.any():
                return other
        if isinstance(a, int) or isinstance(b, int):
            return self.work.binary("max", self._tensor(a), self._tensor(b))
        return np.maximum(a, b)

    def _masked(self, x: int, of: Factor) -> int | None:
        """Emit ``x · of``, and nothing of x where it is 0, not even NaN; None where it is 0 everywhere."""
        if not isinstance(of, int):
            if not of.any():
                return None
            if (of == 1).all():
                return x
        return self.work.binary("mul_nonzero", x, self._tensor(of))

    def _sum(self, terms: Sequence[int | None]) -> int:
        there = [term for term in terms if term is not None]
        return self.work.add(*there) if there else self.work.zeros(self.work.shape(self.x))
