"""Static plan of a dispatch: batches of edges, and the positions that their results go to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.program.layer.attention import BY_HEADS, Pairs
from volumetric.program.layer.edge_tasks import EdgeTask, names_of, tasks_of
from volumetric.program.layer.program_facts import Facts

ALWAYS = -1
"""Column of edges that always fire."""
_WORTH = 1 << 14
"""Minimum number of products for the keys of a constant, per stream, at which precomputing them is worth the cost of
one more operation, about a microsecond."""
Way = Literal["observed", "predicted", "gate", "replace"]


@dataclass(frozen=True, eq=False, slots=True)
class EdgeGroup:
    """A batch of parts of edges with one rule, equal sizes and equal masks.

    Attributes
    ----------
    tasks : the edges; edges that share parameters are treated as further streams of one edge
    parts : for each edge the indices of its parts, equally many for all
    pairs : queries and keys of each part
    columns : for each edge its column in the flags of firing, or `ALWAYS`
    own_params : whether each edge has separate parameters
    constant_rows : number of rows of the constants that they read, equal for all; 0: they read other regions, too. Keys
        and values of a constant are equal in each row and stream
    """

    tasks: tuple[EdgeTask, ...]
    parts: tuple[tuple[int, ...], ...]
    pairs: Pairs
    columns: tuple[int, ...]
    own_params: bool
    constant_rows: int

    @property
    def count(self) -> int:
        """Number of parts of an edge."""
        return len(self.parts[0])

    @property
    def edges(self) -> int:
        """Number of edges with separate parameters in products."""
        return len(self.tasks) if self.own_params else 1

    def rows(self, batch: int) -> int:
        """Number of rows of the group's results."""
        return len(self.tasks) * batch * self.count * self.pairs.queries


@dataclass(frozen=True, eq=False, slots=True)
class PartLayer:
    """At most one part of an edge for each position.

    Attributes
    ----------
    group, edge : index of the group, -1 for no part, and of the edge in it, int64 ``[positions]``
    first, step : row of this edge for the first stream, and stride between streams, int64 ``[positions]``
    share : share of the part, ``[positions]``, 0 for no part
    """

    group: Array
    edge: Array
    first: Array
    step: Array
    share: Array


@dataclass(frozen=True, eq=False, slots=True)
class EdgeWrite:
    """Results of an edge for positions.

    Attributes
    ----------
    task : the edge
    way : kind of write
    layers : parts with results, one or more for a position
    shares : sum of their shares, ``[positions]``; 0 if the edge does not write a position
    """

    task: EdgeTask
    way: Way
    layers: tuple[PartLayer, ...]
    shares: Array


@dataclass(frozen=True, eq=False, slots=True)
class WriteTarget:
    """Positions that some edges write: a region, or regions that overlap.

    Attributes
    ----------
    positions : positions, ascending
    slots : results of edges, in their order
    keeps_old : bool, whether additions are residual
    """

    positions: Array
    slots: tuple[EdgeWrite, ...]
    keeps_old: Array

    @property
    def kind(self) -> tuple[object, ...]:
        """Key that is equal for targets that can be batched."""
        return len(self.positions), *((slot.way, len(slot.layers)) for slot in self.slots)


@dataclass(frozen=True, eq=False, slots=True)
class DispatchPlan:
    """Plan of a dispatch.

    Attributes
    ----------
    groups : batches of edges
    targets : positions to write, batched by kind
    columns : for each edge its column in the flags of firing, or `ALWAYS`
    """

    facts: Facts
    groups: tuple[EdgeGroup, ...]
    targets: tuple[tuple[WriteTarget, ...], ...]
    columns: tuple[int, ...]


@lru_cache(maxsize=32)
def plan_of(
    facts: Facts, columns: tuple[int, ...] | None = None, *, separate: bool = True, folded: bool = False
) -> DispatchPlan:
    """Return the plan of a dispatch.

    Parameters
    ----------
    columns : for each edge its column in the flags of firing, `ALWAYS` if it always fires; None: all do
    separate : batch only edges that fire together
    folded : precompute keys and values of constants, so that edges that read them are in separate batches
    """
    columns = columns or (ALWAYS,) * len(facts.wires)
    tasks = tasks_of(facts)
    groups, where = _groups(facts, tasks, columns, separate=separate, folded=folded)
    keeps_old = positions_kept(facts)
    alike: dict[tuple[object, ...], list[WriteTarget]] = {}
    for positions, writers in _clusters(tasks):
        slots = tuple(_slot(task, positions, groups, where) for task in writers)
        target = WriteTarget(positions, slots, keeps_old[positions])
        alike.setdefault(target.kind, []).append(target)
    return DispatchPlan(facts, groups, tuple(map(tuple, alike.values())), columns)


def names_in(facts: Facts, group: EdgeGroup) -> dict[str, tuple[str, ...]]:
    """Return the parameter names of the edges of a group, by the names of their rule."""
    names = [names_of(facts, task) for task in group.tasks[: group.edges]]
    return {name: tuple(of[name] for of in names) for name in names[0]}


def stacks_of(plan: DispatchPlan) -> list[tuple[str, ...]]:
    """Return the groups of parameters that a dispatch reads only stacked, in this order."""
    stacks = [names for group in plan.groups for names in names_in(plan.facts, group).values()]
    uses = Counter(name for names in stacks for name in names)
    return [names for names in stacks if len(names) > 1 and all(uses[name] == 1 for name in names)]


Where = dict[tuple[int, int], tuple[int, int, int]]
"""Edge and part → group, and index among its edges and among their parts."""


def _groups(
    facts: Facts, tasks: Sequence[EdgeTask], columns: Sequence[int], *, separate: bool, folded: bool
) -> tuple[tuple[EdgeGroup, ...], Where]:
    """Return batches of parts, and the place of each part in them."""
    by_key: dict[tuple[object, ...], list[tuple[EdgeTask, tuple[int, ...]]]] = {}
    known = {task.wire.index: _constant_rows(facts, task) if folded else 0 for task in tasks}
    for task in tasks:
        kinds: dict[tuple[object, ...], list[int]] = {}
        for number, part in enumerate(task.parts):
            kinds.setdefault(_kind(task, part.pairs), []).append(number)
        for kind, numbers in kinds.items():
            column = columns[task.wire.index] if separate else ALWAYS
            key = (task.rule, kind, len(numbers), column, known[task.wire.index])
            if facts.program.share == "rule":
                key = (*key, task.owner)
            by_key.setdefault(key, []).append((task, tuple(numbers)))
    groups: list[EdgeGroup] = []
    where: Where = {}
    for members in by_key.values():
        first, numbers = members[0]
        for edge, (task, parts) in enumerate(members):
            where |= {(task.wire.index, part): (len(groups), edge, k) for k, part in enumerate(parts)}
        own = facts.program.share == "edge" and bool(first.rule.params(facts.program.canvas.width, first.queries))
        groups.append(
            EdgeGroup(
                tasks=tuple(task for task, _ in members),
                parts=tuple(parts for _, parts in members),
                pairs=first.parts[numbers[0]].pairs,
                columns=tuple(columns[task.wire.index] for task, _ in members),
                own_params=own,
                constant_rows=known[first.wire.index],
            )
        )
    return tuple(groups), where


def _constant_rows(facts: Facts, task: EdgeTask) -> int:
    """Return the rows of the constant that an edge reads, if precomputing its keys and values pays off; else 0."""
    place, back = facts.places[task.source[0]], task.source[1]
    if place.carrier != "constant" or back or task.rule.name not in BY_HEADS:
        return 0
    return place.rows if place.rows * facts.program.canvas.width**2 >= _WORTH else 0


def _kind(task: EdgeTask, pairs: Pairs) -> tuple[object, ...]:
    """Return a key that is equal for pairs that a rule treats equally, with parameters of the same sizes."""
    visible = task.rule.visible(pairs)
    return pairs.queries, pairs.keys, None if visible is None else visible.tobytes(), task.queries


def _clusters(tasks: Sequence[EdgeTask]) -> list[tuple[Array, list[EdgeTask]]]:
    """Return the written positions, merged for overlapping regions, and the edges that write them, in order."""
    cluster: dict[int, int] = {}  # position → cluster
    members: dict[int, set[int]] = {}
    for number, place in {task.place.index: task.place for task in tasks}.items():
        own = set(place.positions.tolist())
        for met in {cluster[at] for at in own if at in cluster}:
            own |= members.pop(met)
        members[number] = own
        cluster |= dict.fromkeys(own, number)
    by_cluster: dict[int, list[EdgeTask]] = {}
    for task in tasks:
        by_cluster.setdefault(cluster[int(task.place.positions[0])], []).append(task)
    return [(np.array(sorted(members[number])), writers) for number, writers in by_cluster.items()]


def _slot(task: EdgeTask, positions: Array, groups: Sequence[EdgeGroup], where: Where) -> EdgeWrite:
    """Return the plan by which results of edge parts are added to the positions of a region, layer by layer."""
    at = np.searchsorted(positions, task.place.positions)
    depth = np.zeros(len(positions), np.int64)
    layers: list[PartLayer] = []
    for number, part in enumerate(task.parts):
        group, edge, k = where[task.wire.index, number]
        count, n = groups[group].count, groups[group].pairs.queries
        mine = at[part.written[part.receives]]
        while len(layers) <= depth[mine].max(initial=-1):
            layers.append(_empty_layer(len(positions)))
        for level in np.unique(depth[mine]):
            which = depth[mine] == level
            layer, to = layers[level], mine[which]
            layer.group[to], layer.step[to], layer.share[to] = group, count * n, part.share
            # Rows are in the order of edges, streams, parts, positions.
            layer.first[to] = k * n + np.flatnonzero(part.receives)[which]
            layer.edge[to] = edge
        depth[mine] += 1
    shares = np.zeros(len(positions))
    shares[at] = task.shares
    ways: dict[str, Way] = {
        "add": "predicted" if task.is_prediction else "observed",
        "gate": "gate",
        "replace": "replace",
    }
    return EdgeWrite(task, ways[task.wire.write], tuple(layers), shares)


def _empty_layer(count: int) -> PartLayer:
    group, edge, first, step = (np.full(count, value, np.int64) for value in (-1, 0, 0, 0))
    return PartLayer(group, edge, first, step, np.zeros(count))


def positions_kept(facts: Facts) -> Array:
    """Return the positions with residual additions, bool ``[positions]``."""
    keeps_old = np.zeros(facts.program.canvas.positions, np.bool_)
    if facts.program.parity:
        return keeps_old
    for task in tasks_of(facts):
        if task.wire.write == "add" and task.place.region.keeps_old and task.place.carrier != "residual":
            keeps_old[task.place.positions[task.shares > 0]] = True
    return keeps_old
