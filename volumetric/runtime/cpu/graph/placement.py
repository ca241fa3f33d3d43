"""Where the tensors of a graph lie, and which steps must wait for all threads.

A *storage* is what tensors share that are views of one another, have the same key, or were joined because an
element-wise step may write over an operand that nobody reads any more. Scratch storages lie in one arena, where memory
is used again once its last reader is done; inputs and outputs of some size lie in arrays of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from volumetric.runtime.cpu.graph.steps import Draft, GraphStep
from volumetric.runtime.graph.liveness import roots

Home = Literal["arena", "key", "constant", "caller"]

LARGE = 1 << 17
"""Bytes from which an input or output is used where it lies instead of being copied."""

_OVERWRITES = frozenset({"unary", "unary_grad", "binary"})
"""Operations that read an element of an operand of the result's size before they write that of the result."""


@dataclass(slots=True)
class Storage:
    """Memory of one or more tensors.

    Attributes
    ----------
    size : bytes
    first, last : steps between which its contents matter
    offset : place in the arena
    """

    size: int
    home: Home
    first: int
    last: int
    offset: int = 0


class Placement:
    """Storages of a draft.

    Attributes
    ----------
    of : tensor → its storage
    storages : all of them; the numbers of those that were joined with others stay unused
    arena : bytes that the arena needs
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        graph = draft.graph
        root = roots(graph)
        self.of = [*root, *range(len(graph.tensors), len(draft.sizes))]
        by_key: dict[str, int] = {}
        for i, r in enumerate(root):
            key = graph.tensors[r].key
            if key is not None:
                self.of[i] = by_key.setdefault(key, r)
        self.storages = {i: Storage(draft.sizes[i], "arena", len(draft.steps), -1) for i in set(self.of)}
        for i in by_key.values():
            self.storages[i].home = "key"
        for i in graph.constants:
            self.storages[self.of[i]].home = "constant"
        self._lifetimes()
        self._caller_owned()
        self._overwrite()
        self.arena = self._pack()

    def _lifetimes(self) -> None:
        draft = self._draft
        for at, step in enumerate(draft.steps):
            for i in (*step.reads, *step.writes):
                storage = self.storages[self.of[i]]
                storage.first, storage.last = min(storage.first, at), max(storage.last, at)
        for i in draft.graph.inputs:
            self.storages[self.of[i]].first = -1
        for i in draft.graph.outputs:
            self.storages[self.of[i]].last = len(draft.steps)

    def _caller_owned(self) -> None:
        """Let large inputs and outputs be arrays of the caller, unless Python code must find them."""
        graph = self._draft.graph
        by_python = {self.of[i] for step in self._draft.steps if step.host for i in (*step.reads, *step.writes)}
        written = {self.of[i] for step in self._draft.steps for i in step.writes}
        inputs = [self.of[i] for i in graph.inputs]
        outputs = [self.of[i] for i in graph.outputs]
        for place in {*inputs, *outputs} - by_python:
            storage = self.storages[place]
            once = inputs.count(place) + outputs.count(place) == 1
            if once and storage.home == "arena" and storage.size >= LARGE and (place in inputs) != (place in written):
                storage.home = "caller"

    def _overwrite(self) -> None:
        for at, step in enumerate(self._draft.steps):
            if step.name not in _OVERWRITES:
                continue
            [result] = step.writes
            target = self.storages[self.of[result]]
            for i in step.reads:
                source = self.storages[self.of[i]]
                fits = i in step.shared and source.size == target.size and source is not target
                if fits and source.home == target.home == "arena" and source.last == at == target.first:
                    self._join(self.of[i], self.of[result])
                    break

    def _join(self, kept: int, gone: int) -> None:
        self.storages[kept].last = self.storages[gone].last
        del self.storages[gone]
        self.of = [kept if place == gone else place for place in self.of]

    def _pack(self) -> int:
        """Give each storage of the arena a place: the smallest gap that is free when it is first needed."""
        waiting = sorted((s for s in self.storages.values() if s.home == "arena" and s.size), key=lambda s: s.first)
        taken: list[Storage] = []
        end = 0
        for storage in waiting:
            taken = sorted((s for s in taken if s.last >= storage.first), key=lambda s: s.offset)
            storage.offset = _gap(taken, storage.size)
            end = max(end, storage.offset + _padded(storage.size))
            taken.append(storage)
        return end

    def place(self, tensor: int) -> tuple[int, int]:
        """Return (space, offset) of a tensor: spaces do not overlap; 0 is the arena."""
        number = self.of[tensor]
        storage = self.storages[number]
        return (0, storage.offset) if storage.home == "arena" else (number + 1, 0)


def _padded(size: int) -> int:
    return -(-size // 64) * 64


def _gap(taken: Sequence[Storage], size: int) -> int:
    """Smallest gap between places in order that holds `size` bytes; behind the last one if none does."""
    best, room, at = -1, 0, 0
    for other in taken:
        free = other.offset - at
        if free >= _padded(size) and (best < 0 or free < room):
            best, room = at, free
        at = max(at, other.offset + _padded(other.size))
    return best if best >= 0 else at


def barriers(steps: Sequence[GraphStep], placement: Placement, sizes: Sequence[int]) -> list[bool]:
    """Tell for each step whether threads must meet after it.

    Two steps need no meeting in between if neither writes what the other touches, or if threads share both in the same
    flat range, so that each goes on with what it wrote itself.
    """
    meets = [False] * len(steps)
    open_: list[tuple[int, int, int, bool, int]] = []  # space, start, end, written, flat
    for at, step in enumerate(steps):
        mine = []
        for i in dict.fromkeys((*step.reads, *step.writes)):
            space, offset = placement.place(i)
            flat = step.flat if i in step.shared else 0
            mine.append((space, offset, offset + sizes[i], i in step.writes, flat))
        if any(_clash(a, b) for a in open_ for b in mine):
            meets[at - 1] = True
            open_ = []
        open_ += mine
    return meets


def _clash(a: tuple[int, int, int, bool, int], b: tuple[int, int, int, bool, int]) -> bool:
    if a[0] != b[0] or not (a[3] or b[3]) or a[1] >= b[2] or b[1] >= a[2]:
        return False
    return not (a[4] and a[4] == b[4] and a[1] == b[1])
