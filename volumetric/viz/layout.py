"""Places of boxes and ways of lines: a graph in columns, as Sugiyama, Tagawa & Toda (1981) draw it.

A line that passes columns gets a place in each of them, as a box does, so that it never runs behind a box.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_SWEEPS = 12
_LINE = 0.45
"""Room of a passing line, in that of a box."""

Key: TypeAlias = str | tuple[int, int]
"""A box, or the place of line i in a column."""


@dataclass(slots=True)
class Layout:
    """Where everything is; columns count from 0 at the left, rows are in units of a box, 0 in the middle, downwards.

    Attributes
    ----------
    column : of each box
    row : of each box
    ways : of each line, the rows at which it passes the columns between its ends, from the left to the right one
    """

    column: dict[str, int]
    row: dict[str, float] = field(default_factory=dict)
    ways: list[list[tuple[int, float]]] = field(default_factory=list)

    @property
    def height(self) -> tuple[float, float]:
        """Least and greatest row of anything."""
        rows = [*self.row.values(), *(row for way in self.ways for _, row in way)]
        return min(rows), max(rows)


def lay_out(columns: Mapping[str, int], lines: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes whose columns are known, with few crossings of lines and few bends.

    Parameters
    ----------
    columns : box → column; boxes of a column stand in this order where lines do not ask for another
    lines : pairs of boxes; they may lead backwards or stay in a column
    """
    used = {number: place for place, number in enumerate(sorted(set(columns.values())))}
    column = {name: used[number] for name, number in columns.items()}
    members: list[list[Key]] = [[] for _ in used]
    for name, number in column.items():
        members[number].append(name)
    neighbours: dict[Key, list[tuple[int, Key]]] = {}
    passed: list[list[tuple[int, Key]]] = []
    for i, (a, b) in enumerate(lines):
        left, right = sorted((a, b), key=column.__getitem__)
        between = [(number, (i, number)) for number in range(column[left] + 1, column[right])]
        passed.append([*between])
        for number, key in between:
            members[number].append(key)
        chain: list[tuple[int, Key]] = [(column[left], left), *between, (column[right], right)]
        if column[left] != column[right]:
            for (c, one), (d, other) in itertools.pairwise(chain):
                neighbours.setdefault(one, []).append((d, other))
                neighbours.setdefault(other, []).append((c, one))
    rows: dict[Key, float] = {}
    for column_members in members:
        _stack(column_members, [float(i) for i in range(len(column_members))], rows)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        order = range(len(members)) if forwards else range(len(members) - 1, -1, -1)
        for number in order:
            wanted = []
            for key in members[number]:
                near = [rows[other] for c, other in neighbours.get(key, ()) if (c < number) == forwards or sweep > 5]
                wanted.append(sum(near) / len(near) if near else rows[key] if key in neighbours else 0.0)
            if sweep < _SWEEPS // 2:
                places = sorted(range(len(wanted)), key=lambda i, w=wanted: w[i])
                members[number] = [members[number][i] for i in places]
                wanted = [wanted[i] for i in places]
            _stack(members[number], wanted, rows)
    return Layout(
        column=column,
        row={name: rows[name] for name in column},
        ways=[[(number, rows[key]) for number, key in between] for between in passed],
    )


def _stack(keys: Sequence[Key], wanted: Sequence[float], rows: dict[Key, float]) -> None:
    """Give keys of one column, in this order and apart, the rows that are nearest to what is wanted.

    Without the room that those before take, rows only need to rise: isotonic regression, by pooling neighbours that
    are in the wrong order (Ayer et al. 1955).
    """
    offsets = [0.0]
    for one, other in itertools.pairwise(keys):
        offsets.append(offsets[-1] + (_room(one) + _room(other)) / 2)
    pools: list[tuple[float, int]] = []
    for row, offset in zip(wanted, offsets, strict=False):
        mean, count = row - offset, 1
        while pools and pools[-1][0] > mean:
            before, members = pools.pop()
            mean, count = (mean * count + before * members) / (count + members), count + members
        pools.append((mean, count))
    fitted = [mean for mean, count in pools for _ in range(count)]
    rows.update({key: row + offset for key, row, offset in zip(keys, fitted, offsets, strict=False)})


def _room(key: Key) -> float:
    return 1.0 if isinstance(key, str) else _LINE
