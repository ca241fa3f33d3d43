"""Memory planning for the tensors of a step list, and the barriers that its steps need.

A *storage* is shared by tensors that are views of one another, have the same key, or were joined because a step may
overwrite an operand that nothing reads afterwards. Scratch storages are in one arena, where memory is reused after its
last reader; inputs and outputs may be in the caller's arrays. If rows are open, sizes and offsets are those of one row,
and the arena is as many times as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.devices.cpu.step_builder import BLOCKED, GUARDS, OperationStep, StepBuilder

Home = Literal["arena", "key", "constant", "caller"]

LARGE = 1 << 17
"""Bytes from which an input or output is used in the caller's array instead of being copied."""


@dataclass(slots=True)
class Storage:
    """Memory of one or more tensors.

    Attributes
    ----------
    size : bytes
    first, last : steps between which its contents are live
    offset : offset in the arena
    tensors : tensors that share it
    """

    size: int
    home: Home
    first: int
    last: int
    tensors: list[int]
    offset: int = 0


class StoragePlacement:
    """Storages of a step list.

    Parameters
    ----------
    lent : outputs placed in the caller's arrays; None: all large ones, and large inputs, too

    Attributes
    ----------
    leaves : steps at which liveness is recorded
    of, start : tensor → its storage, and its offset in bytes
    storages : all of them; the numbers of storages joined into others stay unused
    arena : size of the arena in bytes
    """

    def __init__(self, builder: StepBuilder, lent: Sequence[int] | None = None) -> None:
        self._draft = builder
        self.leaves: list[OperationStep] = [leaf for step in builder.steps for leaf in step.leaves]
        graph = builder.graph
        root, shared = builder.roots(), builder.shared
        temporary = range(len(graph.tensors), len(builder.sizes))
        self.of: list[int] = [*(root if shared is None else shared.of), *temporary]
        self.start: list[int] = [*([0] * len(root) if shared is None else shared.start), *([0] * len(temporary))]
        by_key: dict[str, int] = {}
        for i, r in enumerate(root):
            key = graph.tensors[r].key
            if key is not None:
                self.of[i] = by_key.setdefault(key, r)
        for i, (whole, start) in builder.parts.items():
            self.of[i], self.start[i] = self.of[whole], self.start[whole] + start
        self.storages: dict[int, Storage] = {}
        for i, place in enumerate(self.of):
            size = builder.sizes[place] if shared is None else shared.sizes.get(place, builder.sizes[place])
            fresh = Storage(size, "arena", len(self.leaves), -1, [])
            self.storages.setdefault(place, fresh).tensors.append(i)
        for i in by_key.values():
            self.storages[i].home = "key"
        for i in graph.constants:
            self.storages[self.of[i]].home = "constant"
        self._lifetimes()
        if lent is None:
            self._use_caller_arrays()
        else:
            for i in lent:
                self.storages[self.of[i]].home = "caller"
        self._overwrite_operands()
        self.arena: int = self._pack()

    def _lifetimes(self) -> None:
        draft, end = self._draft, 0
        for step in draft.steps:
            first, end = end, end + len(step.leaves)
            for i in (*step.reads, *step.writes):  # of a step with a body: the values that decide whether it runs
                self._lifetime_of(i, first, end - 1)
            for at, leaf in enumerate(step.leaves, first):
                span = (first, end - 1) if step.name == "loop" else (at, at)  # its first step comes after its last, too
                for i in (*leaf.reads, *leaf.writes):
                    self._lifetime_of(i, *span)
        for i in draft.inputs:
            self._lifetime_of(i, -1, -1)
        for i in draft.outputs:
            self._lifetime_of(i, end, end)

    def _lifetime_of(self, tensor: int, first: int, last: int) -> None:
        storage = self.storages[self.of[tensor]]
        storage.first, storage.last = min(storage.first, first), max(storage.last, last)

    def _use_caller_arrays(self) -> None:
        """Place large inputs and outputs in the caller's arrays, unless Python code must find them."""
        graph = self._draft.graph
        by_python = {self.of[i] for step in self.leaves if step.host for i in (*step.reads, *step.writes)}
        written = {self.of[i] for step in self.leaves for i in step.writes}
        inputs = [self.of[i] for i in graph.inputs]
        outputs = [self.of[i] for i in graph.outputs]
        for place in {*inputs, *outputs} - by_python:
            storage = self.storages[place]
            once = inputs.count(place) + outputs.count(place) == 1
            if once and storage.home == "arena" and storage.size >= LARGE and (place in inputs) != (place in written):
                storage.home = "caller"

    def _overwrite_operands(self) -> None:
        for at, leaf in enumerate(self.leaves):
            steps = leaf.body if leaf.name == BLOCKED else (leaf,)
            for number, step in enumerate(steps):
                if step.over:
                    self._overwrite_operand(step, at, before=steps[:number], behind=steps[number + 1 :])

    def _overwrite_operand(
        self, step: OperationStep, at: int, *, before: Sequence[OperationStep], behind: Sequence[OperationStep]
    ) -> None:
        """Let the result of a step replace an operand that is dead afterwards, at leaf `at`."""
        [result] = step.writes
        number = self.of[result]
        target = self.storages[number]
        for i in step.over:
            source = self.storages[self.of[i]]
            sizes = {source.size, target.size, self._draft.sizes[i], self._draft.sizes[result]}
            fits = len(sizes) == 1 and source is not target and source.home == target.home == "arena"
            free = source.last == at == target.first and not self._touched_by(behind, self.of[i])
            if fits and free and not self._touched_by(before, number):
                self._join(self.of[i], number)
                return

    def _touched_by(self, steps: Sequence[OperationStep], number: int) -> bool:
        return any(self.of[i] == number for step in steps for i in (*step.reads, *step.writes))

    def _join(self, into: int, gone: int) -> None:
        joined = self.storages.pop(gone)
        self.storages[into].last = joined.last
        self.storages[into].tensors += joined.tensors
        for i in joined.tensors:
            self.of[i] = into

    def _pack(self) -> int:
        """Assign each storage an arena offset: the smallest gap that is free when it is first needed."""
        waiting = sorted((s for s in self.storages.values() if s.home == "arena" and s.size), key=lambda s: s.first)
        live = np.zeros((3, 0), np.int64)  # offsets of the live storages in order, their ends, and their last steps
        end = 0
        for storage in waiting:
            if storage.last < storage.first:
                continue  # never used
            lives = live[2] >= storage.first
            live = live if lives.all() else live[:, lives]
            size = padded_bytes(storage.size)
            storage.offset = at = _gap(live[0], live[1], size)
            end = max(end, at + size)
            place = np.searchsorted(live[0], at)
            grown = np.empty((3, live.shape[1] + 1), np.int64)  # a tenth of the time that `np.insert` takes
            grown[:, :place], grown[:, place + 1 :] = live[:, :place], live[:, place:]
            grown[:, place] = at, at + size, storage.last
            live = grown
        return end

    def place(self, tensor: int) -> tuple[int, int]:
        """Return (space, offset) of a tensor: spaces do not overlap; 0 is the arena."""
        number = self.of[tensor]
        storage = self.storages[number]
        start = self.start[tensor]
        return (0, storage.offset + start) if storage.home == "arena" else (number + 1, start)


def padded_bytes(size: int) -> int:
    """Bytes that `size` bytes take in the arena."""
    return -(-size // 64) * 64


def _gap(starts: Array, ends: Array, size: int) -> int:
    """Smallest gap between the ordered storages that holds `size` bytes; the end of the last one if none does."""
    if not len(starts):
        return 0
    free = starts.copy()
    free[1:] -= ends[:-1]
    fits = np.flatnonzero(free >= size)
    if not len(fits):
        return int(ends[-1])
    best = fits[free[fits].argmin()]
    return int(starts[best] - free[best])


_Touch = tuple[int, int, int, bool, "int | str"]
"""Space, start, end, whether it is written, and how threads partition it."""
_BLOCK_BITS = 18


def barriers(steps: Sequence[OperationStep], placement: StoragePlacement, sizes: Sequence[int]) -> list[bool]:
    """Return for each leaf of `steps` whether a barrier must follow it.

    Two steps need no barrier in between if neither writes memory that the other accesses, or if threads partition both
    in the same way. A body may be skipped, or repeated: barriers precede its first step and follow its last.
    """
    meets = [False] * len(placement.leaves)
    # Indexed by memory blocks, a step is compared with few of the earlier ones; and reads only with writes.
    read: dict[tuple[int, int], set[_Touch]] = {}
    written: dict[tuple[int, int], set[_Touch]] = {}
    at = 0
    for step in steps:
        walked = step.leaves == step.body
        if walked and at:
            meets[at - 1] |= bool(read or written)
            read, written = {}, {}
        for leaf in step.leaves:
            mine = [(block, b) for b in _touched_spaces(leaf, placement, sizes) for block in _blocks(b)]
            if any(
                _clash(a, b)
                for block, b in mine
                for before in ((written, read) if b[3] else (written,))
                for a in before.get(block, ())
            ):
                meets[at - 1] = True
                read, written = {}, {}
            for block, b in mine:
                (written if b[3] else read).setdefault(block, set()).add(b)
            at += 1
        if walked:
            meets[at - 1] = True
            read, written = {}, {}
    return meets


def predicate_barriers(
    steps: Sequence[OperationStep], placement: StoragePlacement, sizes: Sequence[int], meets: Sequence[bool]
) -> list[bool]:
    """Return for each of `steps` whether a barrier must follow it even if its body is skipped.

    Each thread evaluates the predicate by itself. Without a barrier the first one could overwrite the predicate's input
    in a later step before the last one has read it, and they would diverge.

    Parameters
    ----------
    meets : the result of `barriers`
    """
    needed = [False] * len(steps)
    guard_reads: set[_Touch] = set()  # by predicates since the last unconditional barrier
    predicate = at = 0
    for number, step in enumerate(steps):
        predicates = step.name in GUARDS
        for leaf in step.leaves:
            mine = _touched_spaces(leaf, placement, sizes) if guard_reads else ()
            if any(a[0] == b[0] and _clash(a, b) for b in mine for a in guard_reads):
                needed[predicate], guard_reads = True, set()
            if meets[at] and not predicates:
                guard_reads = set()
            at += 1
        if predicates:
            guard_reads.update(_touched_spaces(step, placement, sizes))
            predicate = number
    return needed


def _touched_spaces(step: OperationStep, placement: StoragePlacement, sizes: Sequence[int]) -> list[_Touch]:
    touches: list[_Touch] = []
    for i in dict.fromkeys((*step.reads, *step.writes)):
        space, offset = placement.place(i)
        flat = step.flat if i in step.shared else 0
        touches.append((space, offset, offset + sizes[i], i in step.writes, flat))
    return touches


def _blocks(of: _Touch) -> list[tuple[int, int]]:
    """Return the memory blocks that contain the accessed ranges."""
    return [(of[0], n) for n in range(of[1] >> _BLOCK_BITS, (of[2] - 1 >> _BLOCK_BITS) + 1)]


def _clash(a: _Touch, b: _Touch) -> bool:
    """Whether two accesses to one block need a barrier in between."""
    if not (a[3] or b[3]) or a[1] >= b[2] or b[1] >= a[2]:
        return False
    return not (a[4] and a[4] == b[4] and a[1:3] == b[1:3])
