"""New values of positions from the results of edges, batched by kind: weighted sums of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.program.layer.attention import stack_tensors
from volumetric.program.layer.dispatch_plan import DispatchPlan, EdgeWrite, WriteTarget

Factor: TypeAlias = "Array | int"
"""Constants of the graph, or a tensor; ``[targets, B or 1, positions or 1, 1]``."""
Term: TypeAlias = "tuple[Array | None, Factor]"
"""Row indices into the results of edges, ``[targets, B, positions]`` (None: the old content), and a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Emitter of the writes to targets of a kind.

    Attributes
    ----------
    batch : number of streams
    ends : first row of each group in the results of edges, and a row index for a missing result
    flags : returns which edges fire, ``[targets, B, 1, 1]``, or None: all do
    gates : returns the gates of slots, ``[targets]``
    """

    work: GraphBuilder
    plan: DispatchPlan
    targets: Sequence[WriteTarget]
    batch: int
    ends: Array
    flags: Callable[[Sequence[EdgeWrite]], int | None]
    gates: Callable[[Sequence[EdgeWrite]], list[int]]

    def terms(self) -> tuple[list[Term], Factor]:
        """Emit the terms of new values, without terms that are always 0, and where some edge has written."""
        observed, predicted, gates = self._mean("observed"), self._mean("predicted"), self._gate_terms()
        # x stays if nothing is added, or if additions are residual.
        written: Factor = np.zeros((1, 1, 1, 1))
        for side in (observed, predicted):
            written = written if side is None else self._maximum(written, side[1])
        stays = self._one_minus(written)
        if gates is not None and self.plan.facts.program.parity:
            stays = self._times(stays, self._one_minus(gates[1]))
        if observed is not None:
            keeps_old = np.stack([target.keeps_old for target in self.targets]).astype(np.float64)[:, None, :, None]
            stays = self._maximum(stays, self._times(keeps_old, observed[1]))
        terms: list[Term] = [(None, stays), *([] if observed is None else observed[0])]
        if predicted is not None:
            terms += [(ids, self._scale(of, -1.0)) for ids, of in predicted[0]]
        if gates is not None:
            terms += gates[0]
            written = self._maximum(written, gates[1])
        for number in self._slots("replace"):
            flag = self._flag(number)
            rest = self._one_minus(flag)
            terms = [(ids, self._times(of, rest)) for ids, of in terms]
            terms += [(ids, self._times(of, flag)) for ids, of in self._mean_parts(number)]
            written = self._maximum(written, flag)
        return [term for term in terms if isinstance(term[1], int) or term[1].any()], written

    def result(self, number: int) -> list[Term]:
        """Return the result of a slot, 0 if it does not fire."""
        return self._value(number, np.ones((1, 1, 1, 1)))

    def _slots(self, way: str) -> list[int]:
        """Return the indices of the slots of a kind."""
        return [number for number, slot in enumerate(self.targets[0].slots) if slot.way == way]

    def _mean(self, way: str) -> tuple[list[Term], Factor] | None:
        """Emit the weighted mean of additions, and where there are any."""
        numbers = self._slots(way)
        if not numbers:
            return None
        weights = [
            np.array([target.slots[number].task.wire.weight for target in self.targets])[:, None, None, None]
            for number in numbers
        ]
        den: Factor = np.zeros((1, 1, 1, 1))
        for number, weight in zip(numbers, weights, strict=True):
            den = self._add(den, self._live(number, self._shares(number) * weight))
        if isinstance(den, int):
            has: Factor = self.work.binary("greater", den, self.work.scalar(0.0))
            below: Factor = self.work.add(den, self.work.affine(has, -1.0, 1.0))
        else:
            has, below = (den > 0).astype(np.float64), np.where(den > 0, den, 1)
        terms = [term for n, weight in zip(numbers, weights, strict=True) for term in self._value(n, weight)]
        return [(ids, self._divide(of, below)) for ids, of in terms], has

    def _gate_terms(self) -> tuple[list[Term], Factor] | None:
        """Emit the gated results, and where there are any."""
        work, terms, some = self.work, list[Term](), np.zeros((1, 1, 1, 1))
        for number in self._slots("gate"):
            gates = self.gates([target.slots[number] for target in self.targets])
            opened = work.reshape(work.unary(stack_tensors(work, gates), "sigmoid"), (len(gates), 1, 1, 1))
            flag = self._flag(number)
            terms += [(ids, self._times(self._times(of, flag), opened)) for ids, of in self._mean_parts(number)]
            some = self._maximum(some, flag)
        return (terms, some) if terms else None

    def _mean_parts(self, number: int) -> list[Term]:
        """Return the mean of the parts of a slot's result."""
        shares = self._shares(number)
        return [(ids, of / np.where(shares > 0, shares, 1)) for ids, of in self._parts(number)]

    def _value(self, number: int, weight: Array) -> list[Term]:
        """Emit the result of a slot times a weight, 0 if it does not fire."""
        return [(ids, self._live(number, of * weight)) for ids, of in self._parts(number)]

    def _parts(self, number: int) -> list[tuple[Array, Array]]:
        """Return the rows of the parts of a slot, and their shares."""
        groups = self.plan.groups
        of_edge = np.array([group.rows(self.batch) // len(group.tasks) for group in groups])
        parts: list[tuple[Array, Array]] = []
        for k in range(len(self.targets[0].slots[number].layers)):
            layers = [target.slots[number].layers[k] for target in self.targets]
            ids: list[Array] = []
            for layer in layers:
                first = self.ends[layer.group] + layer.edge * of_edge[layer.group] + layer.first
                own = first + np.arange(self.batch)[:, None] * layer.step
                ids.append(np.where(layer.group < 0, self.ends[-1], own))
            parts.append((np.stack(ids), np.stack([layer.share for layer in layers])[:, None, :, None]))
        return parts

    def _shares(self, number: int) -> Array:
        return np.stack([target.slots[number].shares for target in self.targets])[:, None, :, None]

    def _flag(self, number: int) -> Factor:
        return self._live(number, (self._shares(number) > 0).astype(np.float64))

    def _live(self, number: int, factor: Array) -> Factor:
        """Return a factor, 0 if the edges do not fire."""
        live = self.flags([target.slots[number] for target in self.targets])
        return factor if live is None else self.work.binary("mul", self._tensor(factor), live)

    def _tensor(self, of: Factor) -> int:
        return of if isinstance(of, int) else self.work.constant(np.asarray(of, np.float64), "factor")

    def _one_minus(self, of: Factor) -> Factor:
        return self.work.affine(of, -1.0, 1.0) if isinstance(of, int) else 1 - of

    def _times(self, a: Factor, b: Factor) -> Factor:
        if isinstance(a, int) or isinstance(b, int):
            known = a if not isinstance(a, int) else b
            if not isinstance(known, int) and not known.any():
                return np.zeros((1, 1, 1, 1))
            return self.work.binary("mul", self._tensor(a), self._tensor(b))
        return a * b

    def _divide(self, a: Factor, b: Factor) -> Factor:
        if isinstance(a, int) or isinstance(b, int):
            return self.work.binary("div", self._tensor(a), self._tensor(b))
        return a / b

    def _add(self, a: Factor, b: Factor) -> Factor:
        if isinstance(a, int) or isinstance(b, int):
            if not isinstance(a, int) and not a.any():
                return b
            return self.work.add(self._tensor(a), self._tensor(b))
        return a + b

    def _maximum(self, a: Factor, b: Factor) -> Factor:
        """Return the maximum of factors that are 0 or 1."""
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, int) and not one.any():
                return other
        if isinstance(a, int) or isinstance(b, int):
            return self.work.binary("max", self._tensor(a), self._tensor(b))
        return np.maximum(a, b)

    def _scale(self, of: Factor, by: float) -> Factor:
        return self.work.affine(of, by) if isinstance(of, int) else of * by
