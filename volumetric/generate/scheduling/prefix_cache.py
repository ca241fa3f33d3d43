"""Prefix cache: a radix tree over token ids, whose entries are states that are copied instead of recomputed.

An entry is the state of a sequence that has ended, prompt and answer, or a copy at a position where a prompt may be
needed again. Any prefix of it can be used, back to the oldest restorable position of the state (`State.reach`): any
position for attention, unless a window has dropped rows, and only the end for recurrent layers. A user of an entry
copies it, in the only thread that changes the tree, so that no entry is dropped while it is read; on GPUs copies share
reference-counted pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from volumetric.run.device import State

_LOOKS = 8
"""Most entries after the end of the common prefix that are checked for a restorable state."""


@dataclass(slots=True, eq=False)
class PrefixEntry:
    """A cached state, and its place in the tree."""

    state: State
    rows: int
    nbytes: int
    node: _PrefixNode


@dataclass(slots=True, eq=False)
class _PrefixNode:
    """Tokens that follow those of the parent; a node without an entry has two children or more."""

    edge: NDArray[np.int32]
    parent: _PrefixNode | None
    children: dict[int, _PrefixNode] = field(default_factory=dict)
    entry: PrefixEntry | None = None

    def below(self) -> Iterator[PrefixEntry]:
        """All entries of this subtree."""
        stack: list[_PrefixNode] = [self]
        while stack:
            node = stack.pop()
            if node.entry is not None:
                yield node.entry
            stack.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The cached part of a sequence.

    Attributes
    ----------
    entry, rows : a state, and the number of its first rows that match
    known : length of the longest known prefix, which no state may be able to restore
    """

    entry: PrefixEntry | None
    rows: int
    known: int


class PrefixCache:
    """The tree, and the memory of its entries.

    Parameters
    ----------
    limit : most bytes of all entries
    bytes_of : bytes of a state by its rows, without spare capacity

    Attributes
    ----------
    nbytes : bytes of all entries
    evictions : number of entries dropped for lack of memory
    """

    def __init__(self, limit: int, bytes_of: Callable[[int], int]) -> None:
        self._limit = limit
        self._bytes_of = bytes_of
        self._roots: dict[Hashable, _PrefixNode] = {}
        self._entries: dict[int, PrefixEntry] = {}  # least recently used first
        self.nbytes: int = 0
        self.evictions: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: NDArray[np.int32], group: Hashable = "") -> PrefixMatch:
        """Return the entry with the longest usable prefix of a sequence."""
        node, depth, best, rows = self._roots.get(group), 0, None, 0
        while node is not None:
            same = common_length(node.edge, ids[depth:])
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
                if entry.state.oldest_restorable <= depth:
                    best, rows = entry, depth
                    break
        return PrefixMatch(best, rows, depth)

    def use(self, entry: PrefixEntry) -> State:
        """Return the state of an entry, to be copied, and mark it as most recently used."""
        self._touch(entry)
        return entry.state

    def keep(self, ids: NDArray[np.int32], state: State, group: Hashable = "") -> None:
        """Take over a state for `ids`, which must not be changed elsewhere; drop entries that it makes redundant."""
        nbytes = self._bytes_of(len(ids))
        if not len(ids) or nbytes > self._limit:
            return
        match = self.find(ids, group)
        if match.entry is not None and match.rows == len(ids):
            self._touch(match.entry)
            return
        node = self._place(ids, group)
        above, reach = node.parent, state.oldest_restorable
        while above is not None:
            entry, above = above.entry, above.parent
            if entry is not None and entry.rows >= reach:
                self._drop(entry)
        state.shrink_to_fit()  # without its spare capacity
        entry = PrefixEntry(state, len(ids), nbytes, node)
        node.entry = self._entries[id(entry)] = entry
        self.nbytes += nbytes
        self.shrink(self._limit)

    def shrink(self, nbytes: int) -> None:
        """Drop the least recently used entries until at most `nbytes` are left."""
        while self.nbytes > max(nbytes, 0):
            self._drop(next(iter(self._entries.values())))
            self.evictions += 1

    def clear(self) -> None:
        """Drop all entries."""
        self._roots.clear()
        self._entries.clear()
        self.nbytes = 0

    def _touch(self, entry: PrefixEntry) -> None:
        self._entries[id(entry)] = self._entries.pop(id(entry))

    def _place(self, ids: NDArray[np.int32], group: Hashable) -> _PrefixNode:
        """Return the node at the end of `ids`; create it, and split an edge, if necessary."""
        root = self._roots.setdefault(group, _PrefixNode(ids[:0], None))
        node, depth = root, 0
        while depth < len(ids):
            following = node.children.get(int(ids[depth]))
            if following is None:
                following = _PrefixNode(ids[depth:].copy(), node)
                node.children[int(ids[depth])] = following
                return following
            same = common_length(following.edge, ids[depth:])
            if same < len(following.edge):
                following = _cut(following, same)
            node, depth = following, depth + same
        return node

    def _drop(self, entry: PrefixEntry) -> None:
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


def _cut(node: _PrefixNode, at: int) -> _PrefixNode:
    """Insert a node in the middle of an edge and return it."""
    parent = node.parent
    assert parent is not None
    middle = _PrefixNode(node.edge[:at], parent, {int(node.edge[at]): node})
    parent.children[int(node.edge[0])] = middle
    node.edge, node.parent = node.edge[at:], middle
    return middle


def _join(node: _PrefixNode) -> None:
    """Merge a node with its only child."""
    parent, (child,) = node.parent, node.children.values()
    assert parent is not None
    child.edge, child.parent = np.concatenate([node.edge, child.edge]), parent
    parent.children[int(child.edge[0])] = child


def common_length(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """Return the length of the common prefix of two sequences."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    first = int(differ.argmax()) if size else 0
    return first if size and differ[first] else size
