"""Kept prefixes: a radix tree over token ids, whose entries are states that are copied instead of computed again.

An entry holds the state of a sequence that has ended, prompt and answer, or a copy made where a prompt may be needed
again. Any beginning of it serves, as far back as the state goes (`State.reach`): that of an attention network
everywhere, unless rows behind a window are gone, that of a recurrent one at its end alone. Whoever uses an entry takes
a copy of its own, in the thread that alone changes the tree, so that none is dropped while it is read; on GPUs the copy
shares pages, which count how many sequences use them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from volumetric.run.device import State

_LOOKS = 8
"""Entries beyond the end of what is shared that are asked whether their states go back so far."""


@dataclass(slots=True, eq=False)
class Entry:
    """A kept state, and where it stands in the tree."""

    state: State
    rows: int
    nbytes: int
    node: _Node


@dataclass(slots=True, eq=False)
class _Node:
    """Tokens that follow those of the parent; a node without an entry has two children or more."""

    edge: NDArray[np.int32]
    parent: _Node | None
    children: dict[int, _Node] = field(default_factory=dict)
    entry: Entry | None = None

    def below(self) -> Iterator[Entry]:
        """All entries here and below."""
        stack: list[_Node] = [self]
        while stack:
            node = stack.pop()
            if node.entry is not None:
                yield node.entry
            stack.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class Match:
    """What is there of a sequence.

    Attributes
    ----------
    entry, rows : a state, and how many of its first rows serve
    known : tokens that were seen before in this order, though no state may lead back there
    """

    entry: Entry | None
    rows: int
    known: int


class Prefixes:
    """The tree, and the memory of its entries.

    Parameters
    ----------
    limit : bytes of all entries, at most
    bytes_of : bytes of a state of so many rows that has no room for more

    Attributes
    ----------
    nbytes : bytes of all entries
    evictions : entries dropped for want of memory
    """

    def __init__(self, limit: int, bytes_of: Callable[[int], int]) -> None:
        self._limit = limit
        self._bytes_of = bytes_of
        self._roots: dict[Hashable, _Node] = {}
        self._entries: dict[int, Entry] = {}  # the one used longest ago first
        self.nbytes = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: NDArray[np.int32], group: Hashable = "") -> Match:
        """Return the entry that serves most of the first tokens of a sequence."""
        node, depth, best, rows = self._roots.get(group), 0, None, 0
        while node is not None:
            same = common(node.edge, ids[depth:])
            depth += same
            if same < len(node.edge):
                break
            if node.entry is not None and depth:
                best, rows = node.entry, depth
            following = node.children.get(int(ids[depth])) if depth < len(ids) else None
            if following is None:
                break
            node = following
        if node is not None and depth > rows:
            for entry in islice(node.below(), _LOOKS):
                if entry.state.reach <= depth:
                    best, rows = entry, depth
                    break
        return Match(best, rows, depth)

    def use(self, entry: Entry) -> State:
        """Return the state of an entry, to be copied; it is now the one used last."""
        self._touch(entry)
        return entry.state

    def keep(self, ids: NDArray[np.int32], state: State, group: Hashable = "") -> None:
        """Take a state over that holds `ids`; nobody else may change it. What it makes useless goes."""
        nbytes = self._bytes_of(len(ids))
        if not len(ids) or nbytes > self._limit:
            return
        match = self.find(ids, group)
        if match.entry is not None and match.rows == len(ids):
            self._touch(match.entry)
            return
        node = self._place(ids, group)
        above, reach = node.parent, state.reach
        while above is not None:
            entry, above = above.entry, above.parent
            if entry is not None and entry.rows >= reach:
                self._drop(entry)
        state.shrink_to_fit()  # what it has to go on is not counted
        entry = Entry(state, len(ids), nbytes, node)
        node.entry = self._entries[id(entry)] = entry
        self.nbytes += nbytes
        self.shrink(self._limit)

    def shrink(self, nbytes: int) -> None:
        """Drop those entries that were used longest ago until no more than so many bytes are left."""
        while self.nbytes > max(nbytes, 0):
            self._drop(next(iter(self._entries.values())))
            self.evictions += 1

    def clear(self) -> None:
        """Drop all entries."""
        self._roots.clear()
        self._entries.clear()
        self.nbytes = 0

    def _touch(self, entry: Entry) -> None:
        self._entries[id(entry)] = self._entries.pop(id(entry))

    def _place(self, ids: NDArray[np.int32], group: Hashable) -> _Node:
        """Return the node at the end of `ids`, making it and cutting an edge where need be."""
        root = self._roots.setdefault(group, _Node(ids[:0], None))
        node, depth = root, 0
        while depth < len(ids):
            following = node.children.get(int(ids[depth]))
            if following is None:
                following = _Node(ids[depth:].copy(), node)
                node.children[int(ids[depth])] = following
                return following
            same = common(following.edge, ids[depth:])
            if same < len(following.edge):
                following = _cut(following, same)
            node, depth = following, depth + same
        return node

    def _drop(self, entry: Entry) -> None:
        del self._entries[id(entry)]
        self.nbytes -= entry.nbytes
        node = entry.node
        node.entry = None
        while node.parent is not None and node.entry is None and len(node.children) < 2:
            parent = node.parent
            if node.children:
                _join(node)
                return
            del parent.children[int(node.edge[0])]
            node = parent
        if node.parent is None and not node.children:
            self._roots = {group: root for group, root in self._roots.items() if root is not node}


def _cut(node: _Node, at: int) -> _Node:
    """Put a node in the middle of an edge and return it."""
    parent = node.parent
    assert parent is not None
    middle = _Node(node.edge[:at], parent, {int(node.edge[at]): node})
    parent.children[int(node.edge[0])] = middle
    node.edge, node.parent = node.edge[at:], middle
    return middle


def _join(node: _Node) -> None:
    """Take a node out that has one child."""
    parent, (child,) = node.parent, node.children.values()
    assert parent is not None
    child.edge, child.parent = np.concatenate([node.edge, child.edge]), parent
    parent.children[int(child.edge[0])] = child


def common(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """Return how many tokens two sequences begin alike with."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    first = int(differ.argmax()) if size else 0
    return first if size and differ[first] else size
