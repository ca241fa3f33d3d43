"""Dispatch: the writes of all edges that fire, computed from the canvas before the step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.weighted_rows import weigh_rows
from volumetric.program.layer.attention import (
    attend,
    attend_directly,
    is_direct,
    map_constants,
    reads_transposed,
    stack_tensors,
    transpose_params,
)
from volumetric.program.layer.dispatch_plan import ALWAYS, DispatchPlan, EdgeGroup, EdgeWrite, WriteTarget, names_in
from volumetric.program.layer.edge_tasks import gate_of
from volumetric.program.layer.program_params import metered_by, rows_of
from volumetric.program.layer.target_writes import Factor, Term, Writing

Guard: TypeAlias = Callable[[int], AbstractContextManager[None]]
"""Group of a plan → context; nodes inside can be skipped if no edge of the group fires in any stream."""
Kind: TypeAlias = "tuple[Sequence[WriteTarget], Sequence[Term], Factor]"
"""Batched targets, the terms of their new values, and where some edge has written."""
Starts: TypeAlias = "dict[tuple[int, int], tuple[int, int]]"
"""Region and steps back → its first row in a table, and number of rows per stream."""
Weights: TypeAlias = Sequence[Mapping[str, int]]
"""Parameters of each group by the names of its rule, ``[E, …]``."""

_KNOWN = ("k.known", "v.known")
"""Precomputed keys and values of groups that read constants, in place of the maps."""


def weights_of(
    work: GraphBuilder,
    plan: DispatchPlan,
    p: Mapping[str, int],
    stacks: Mapping[tuple[str, ...], int] = MappingProxyType({}),
    *,
    learns: bool = True,
) -> list[dict[str, int]]:
    """Emit the stacked parameters of edges, group by group; they are equal in each step.

    Groups that read only constants have projected keys and values in place of their maps, as ``k.known`` and
    ``v.known``, ``[tasks · rows, d]``.

    Parameters
    ----------
    p : parameters that are not stacked
    stacks : parameters that are stored stacked
    learns : whether gradients are needed, so that all edges use nodes that have gradients
    """
    by_group: list[dict[str, int]] = []
    for group in plan.groups:
        own = {
            name: stacks[keys] if keys in stacks else stack_tensors(work, [p[key] for key in keys])
            for name, keys in names_in(plan.facts, group).items()
        }
        if group.constant_rows:
            rows = [p[rows_of(plan.facts.places[task.source[0]].name)] for task in group.tasks]
            known = {name: map_constants(work, own, name.removesuffix("known"), rows) for name in _KNOWN}
            own = {name: of for name, of in own.items() if not name.startswith(("k.", "v."))} | known
        direct = not learns and is_direct(group.tasks[0].rule, group.pairs, plan.facts.program.canvas.width)
        by_group.append(transpose_params(work, own) if direct else own)
    return by_group


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Results of a dispatch.

    Attributes
    ----------
    canvas : ``[B, positions, d]``
    written : 1 if some edge has written a position, else 0, ``[B, positions, 1]``
    results : edge → its result, ``[B, written, d]``, for edges of a program with parity that feed a meter
    """

    canvas: int
    written: int
    results: Mapping[int, int]


def dispatch(
    work: GraphBuilder,
    plan: DispatchPlan,
    weights: Weights,
    p: Mapping[str, int],
    canvas: int,
    read_rows: Mapping[tuple[int, int], int] | None = None,
    live: int | None = None,
    predicate: Guard | None = None,
    *,
    learns: bool = True,
) -> Dispatched:
    """Emit a dispatch.

    Parameters
    ----------
    weights : weights of `weights_of`
    p : parameters; only gates are read
    canvas : ``[B, positions, d]``
    read_rows : region and steps back → rows that edges read, ``[B, rows, d]``; for missing keys, positions of the
        canvas are read
    live : which edges fire in which stream, ``[B, columns]`` of 0 and 1, by the columns of the plan
    predicate : context for nodes that can be skipped
    learns : whether gradients are needed; without them, one operation computes the new canvas
    """
    step = _DispatchStep(work, plan, p, canvas, read_rows or {}, live, predicate or (lambda column: nullcontext()))
    return step.run(weights, learns=learns)


class RowTable:
    """A list of tensors of rows with equal width; concatenated only when rows of several are gathered at once."""

    def __init__(self, work: GraphBuilder, width: int, *parts: int) -> None:
        self._work, self._width = work, width
        self._parts = list[int]()
        self._whole: int | None = None
        self.starts: list[int] = list[int]()
        """First row of each tensor."""
        self._count = 0
        for part in parts:
            self.add(part)

    def add(self, part: int) -> int:
        """Append a tensor ``[rows, width]``; return the index of its first row."""
        self.starts.append(self._count)
        self._parts.append(part)
        self._whole = None
        self._count += self._work.shape(part)[0]
        return self.starts[-1]

    def gather(self, ids: Array) -> int:
        """Emit rows by index, ``[*ids.shape, width]``."""
        flat = ids.reshape(-1)
        contiguous = self._contiguous_rows(flat)
        return self._work.reshape(
            self._gather_copy(flat) if contiguous is None else contiguous, (*ids.shape, self._width)
        )

    def join(self) -> None:
        """Concatenate all rows now, outside of nodes that may be skipped."""
        self._whole = self._work.concat(self._parts, 0)

    @property
    def whole(self) -> int:
        """All rows, concatenated."""
        if self._whole is None:
            self._whole = self._work.concat(self._parts, 0)
        return self._whole

    def _contiguous_rows(self, ids: Array) -> int | None:
        """Emit contiguous rows of one tensor without a copy; None: they are not contiguous."""
        first, last = int(ids[0]), int(ids[-1])
        at = bisect_right(self.starts, first) - 1
        start = self.starts[at]
        inside = last - start < self._work.shape(self._parts[at])[0]
        if not inside or last - first + 1 != len(ids) or (np.diff(ids) != 1).any():
            return None
        return self._work.part(self._parts[at], 0, first - start, last - start + 1)

    def _gather_copy(self, ids: Array) -> int:
        return self._work.gather_rows(self.whole, self._work.constant(ids.astype(np.int32), "rows"))


def _place(from_: Array, targets: Sequence[WriteTarget], first: int) -> None:
    """Store the row indices of positions: targets from `first` on, target by target, stream by stream."""
    batch, n = len(from_), len(targets[0].positions)
    for number, target in enumerate(targets):
        from_[:, target.positions] = first + np.arange(batch * n).reshape(batch, n) + number * batch * n


@dataclass(frozen=True, slots=True)
class _DispatchStep:
    work: GraphBuilder
    plan: DispatchPlan
    p: Mapping[str, int]
    canvas: int
    read_rows: Mapping[tuple[int, int], int]
    live: int | None
    predicate: Guard
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int, int]:
        """Number of streams, number of positions, and width."""
        batch, positions, d = self.work.shape(self.canvas)
        return batch, positions, d

    def run(self, weights: Weights, *, learns: bool) -> Dispatched:
        """Emit the groups of edges one after the other, then their writes to the canvas."""
        work, (batch, positions, d) = self.work, self.size
        rows = RowTable(work, d)
        rows.add(work.reshape(self.canvas, (batch * positions, d)))
        starts = self._add_read_rows(rows)
        brought = RowTable(work, d)
        rows.join()
        for number, (group, own) in enumerate(zip(self.plan.groups, weights, strict=True)):
            with nullcontext() if set(group.columns) == {ALWAYS} else self.predicate(number):
                brought.add(self._group(group, own, rows, starts))
        # A row of zeros, for positions that an edge does not write; `_weighed` does not need it.
        ends = np.array([*brought.starts, brought.add(work.zeros((1, d))) if learns or not brought.starts else -1])
        kinds = [(targets, *self._writing(targets, ends).terms()) for targets in self.plan.targets]
        whole = (self._join_terms if learns else self._weigh_rows)(kinds, rows, brought)
        results = self._results(rows, brought, ends) if self.plan.facts.program.parity else {}
        return Dispatched(work.reshape(whole, (batch, positions, d)), self._write_flags(kinds), results)

    def _join_terms(self, kinds: Sequence[Kind], rows: RowTable, brought: RowTable) -> int:
        """Emit the canvas as sums of terms, kind by kind."""
        work, (batch, positions, d) = self.work, self.size
        canvas, from_ = RowTable(work, d), np.arange(batch * positions).reshape(batch, positions)
        canvas.add(work.reshape(self.canvas, (batch * positions, d)))
        for targets, terms, _ in kinds:
            n = len(targets[0].positions)
            sums = self._sum_terms(targets, terms, rows, brought)
            count = canvas.add(work.reshape(sums, (len(targets) * batch * n, d)))
            _place(from_, targets, count)
        return canvas.gather(from_)

    def _weigh_rows(self, kinds: Sequence[Kind], rows: RowTable, brought: RowTable) -> int:
        """Emit the canvas as weighted sums of its rows and of results of edges."""
        work, (batch, positions, d) = self.work, self.size
        most = max((len(terms) for _, terms, _ in kinds), default=1)
        split, order = batch * positions, np.zeros((batch, positions), np.int64)
        ids = np.zeros((split, max(most, 1)), np.int32)
        ids[:, 0] = np.arange(split)
        weights, count = [work.constant(np.eye(1, ids.shape[1]), "weights")], 1  # of positions without a write
        for targets, terms, _ in kinds:
            n = len(targets[0].positions)
            size = len(targets), batch, n
            here = self._target_rows(targets)
            for k, (of, _) in enumerate(terms):
                ids[here, k] = here if of is None else split + of
            columns = [self._tensor(factor, (*size, 1)) for _, factor in terms]
            columns += [work.zeros((*size, 1))] * (ids.shape[1] - len(columns))
            weights.append(work.reshape(work.concat(columns, 3), (int(np.prod(size)), ids.shape[1])))
            _place(order, targets, count)
            count += int(np.prod(size))
        table = RowTable(work, ids.shape[1])
        for part in weights:
            table.add(part)
        by = work.reshape(table.gather(order), ids.shape)
        near = work.reshape(self.canvas, (split, d))
        return weigh_rows(work, near, brought.whole, work.constant(ids, "rows"), by)

    def _write_flags(self, kinds: Sequence[Kind]) -> int:
        """Emit whether some edge has written each position, ``[B, positions, 1]``."""
        work, (batch, positions, _) = self.work, self.size
        flags, from_ = RowTable(work, 1), np.zeros((batch, positions), np.int64)
        flags.add(work.zeros((1, 1)))
        for targets, _, written in kinds:
            n = len(targets[0].positions)
            part = self._tensor(written, (len(targets), batch, n, 1))
            _place(from_, targets, flags.add(work.reshape(part, (len(targets) * batch * n, 1))))
        return work.reshape(flags.gather(from_), (batch, positions, 1))

    def _sum_terms(
        self, targets: Sequence[WriteTarget], terms: Sequence[Term], rows: RowTable, brought: RowTable
    ) -> int:
        """Emit sums of terms, ``[targets, B, positions, d]``."""
        work, (batch, _, d), products = self.work, self.size, list[int]()
        for ids, factor in terms:
            # Without a row of zeros, any row serves for a missing write: it is multiplied by 0.
            x = rows.gather(self._target_rows(targets)) if ids is None else brought.gather(np.maximum(ids, 0))
            one = not isinstance(factor, int) and (factor == 1).all()
            products.append(x if one else work.binary("mul_nonzero", x, self._tensor(factor)))
        return work.add(*products) if products else work.zeros((len(targets), batch, len(targets[0].positions), d))

    def _target_rows(self, targets: Sequence[WriteTarget]) -> Array:
        """Return the row indices of targets, ``[targets, B, positions]``."""
        at = np.stack([target.positions for target in targets])
        return np.arange(self.size[0])[:, None] * self.size[1] + at[:, None]

    def _tensor(self, of: Factor, shape: tuple[int, ...] | None = None) -> int:
        tensor = of if isinstance(of, int) else self.work.constant(np.asarray(of, np.float64), "factor")
        return tensor if shape is None else self.work.broadcast(tensor, shape)

    def _add_read_rows(self, rows: RowTable) -> Starts:
        """Append further rows that edges read; return the first row and the rows per stream of each source."""
        starts: Starts = {}
        for source, tensor in self.read_rows.items():
            batch, wide, d = self.work.shape(tensor)
            starts[source] = rows.add(self.work.reshape(tensor, (batch * wide, d))), wide
        return starts

    def _group(self, group: EdgeGroup, weights: Mapping[str, int], rows: RowTable, starts: Starts) -> int:
        """Emit the results of a group of edges, ``[rows, d]``, in the order of edges, streams, parts, positions."""
        work, (batch, positions, d) = self.work, self.size
        of_stream = np.arange(batch)[:, None, None]
        asks: list[Array] = []
        tells: list[Array] = []
        for place, (task, numbers) in enumerate(zip(group.tasks, group.parts, strict=True)):
            if group.constant_rows:
                start, wide, own = place * group.constant_rows, 0, np.arange(group.constant_rows)
            else:
                start, wide, own = self._source(task.source, starts)
            parts = [task.parts[number] for number in numbers]
            asks.append(of_stream * positions + np.stack([task.place.positions[part.written] for part in parts]))
            tells.append(start + of_stream * wide + np.stack([own[part.read] for part in parts]))
        lead = group.edges, len(group.tasks) // group.edges * batch * group.count
        known = [weights[name] for name in _KNOWN if group.constant_rows]
        maps = {name: of for name, of in weights.items() if name not in _KNOWN}
        if reads_transposed(weights):
            ask, tell = (
                work.constant(np.stack(ids).reshape(*lead, -1).astype(np.int32), "rows") for ids in (asks, tells)
            )
            outputs = attend_directly(work, group.tasks[0].rule, maps, (rows.whole, ask, tell), group.pairs, known)
            return work.reshape(outputs, (group.rows(batch), d))

        def gathered(table: RowTable, ids: list[Array]) -> int:
            return work.reshape(table.gather(np.stack(ids)), (*lead, ids[0].shape[-1], d))

        keys_values = [gathered(table, tells) for table in ([RowTable(work, d, one) for one in known] or [rows])]
        outputs = attend(
            work, group.tasks[0].rule, maps, gathered(rows, asks), keys_values[0], group.pairs, keys_values[-1]
        )
        return work.reshape(outputs, (group.rows(batch), d))

    def _source(self, source: tuple[int, int], starts: Starts) -> tuple[int, int, Array]:
        """Return the first row of a source, its rows per stream, and the rows that edges read."""
        if source in starts:
            return *starts[source], np.arange(starts[source][1])
        place = self.plan.facts.places[source[0]]
        if source[1] or place.through != "positions":
            raise SpecError(f"rows of region {place.name!r}, {source[1]} steps back, are missing")
        return 0, self.size[1], place.positions

    def _writing(self, targets: Sequence[WriteTarget], ends: Array) -> Writing:
        return Writing(
            work=self.work,
            plan=self.plan,
            targets=targets,
            batch=self.size[0],
            ends=ends,
            flags=self._flags,
            gates=lambda slots: [self.p[gate_of(slot.task)] for slot in slots],
        )

    def _results(self, rows: RowTable, brought: RowTable, ends: Array) -> dict[int, int]:
        """Emit the results of edges that feed meters."""
        work, (batch, _, d), results = self.work, self.size, dict[int, int]()
        for target in (target for targets in self.plan.targets for target in targets):
            for number, slot in enumerate(target.slots):
                task = slot.task
                if not metered_by(task, self.plan.facts.places[task.wire.reads]):
                    continue
                terms = self._writing([target], ends).result(number)
                whole = RowTable(work, d)
                sums = self._sum_terms([target], terms, rows, brought)
                whole.add(work.reshape(sums, (batch * len(target.positions), d)))
                at = np.searchsorted(target.positions, task.place.positions)
                results[task.wire.index] = whole.gather(np.arange(batch)[:, None] * len(target.positions) + at)
        return results

    def _flags(self, slots: Sequence[EdgeWrite]) -> int | None:
        """Emit which edges fire, ``[targets, B, 1, 1]``; None: all, always."""
        work, (batch, _, _) = self.work, self.size
        columns = tuple(self.plan.columns[slot.task.wire.index] for slot in slots)
        if self.live is None or set(columns) == {ALWAYS}:
            return None
        if columns not in self._known:
            known = work.shape(self.live)[1]
            table = work.permute(self.live, (1, 0))
            if ALWAYS in columns:
                table = work.concat((table, work.broadcast(work.constant(np.ones((1, 1)), "always"), (1, batch))), 0)
            ids = np.array([known if column == ALWAYS else column for column in columns], np.int32)
            flag_rows = work.gather_rows(table, work.constant(ids, "columns"))
            self._known[columns] = work.reshape(flag_rows, (len(columns), batch, 1, 1))
        return self._known[columns]
