"""Rules for layers that remember: what a graph takes from the sequence so far, and what it hands back.

A graph has static shapes, a sequence grows. So the past is an input: keys and values of the rows before, in an array
with room for a power of two of them, of which a mask hides what is not there yet; the last recurrent state; numbers
that depend on the position. What the new rows add is an output, which the host appends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from volumetric._typing import Array
from volumetric.errors import GenerationError
from volumetric.layers import GRU, LSTM, RNN, GumbelSoftmax, LayerSpec, MultiHeadAttention, PositionEmbedding, Softmax
from volumetric.layers.recurrent import Recurrent
from volumetric.layers.rope import rotation
from volumetric.rng import generator
from volumetric.runtime.graph.rules.base import Scope, linear
from volumetric.runtime.graph.rules.sequences import attend, heads, recurrent


class Past:
    """Rows of one array of one layer, in the order of positions; zeros behind them."""

    def __init__(self) -> None:
        self._rows: Array | None = None

    def append(self, position: int, new: Array) -> None:
        """Put `new` ``[T, …]`` at `position` and after."""
        end = position + len(new)
        if self._rows is None or len(self._rows) < end:
            grown = np.zeros((room(end), *new.shape[1:]), np.float32)
            if self._rows is not None:
                grown[:position] = self._rows[:position]
            self._rows = grown
        self._rows[position:end] = new

    def trim(self, position: int) -> None:
        """Forget the rows from `position` on."""
        if self._rows is not None:
            self._rows[position:] = 0

    def first(self, count: int) -> Array:
        """Return `count` rows, which are there."""
        if self._rows is None:
            raise IndexError("nothing has been remembered")
        return self._rows[:count]


def room(rows: int) -> int:
    """Rows that an array for `rows` of them has: a power of two, so that growing costs few programs and copies."""
    return max(16, 1 << (rows - 1).bit_length()) if rows else 0


Memories: TypeAlias = dict[str, Past]
"""Layer path and name → what it remembers."""
Feed: TypeAlias = Callable[[Memories, int], Array]
"""Memories and position → the value of an input."""


@dataclass(slots=True)
class Carried:
    """What the rules found: an array for each input after the first, and an array name for each output after it.

    Attributes
    ----------
    room : past rows that the graph has room for
    """

    room: int
    feeds: list[Feed] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)

    def keep(self, name: str, tensor: int, *, fixed: bool = False) -> None:
        """Hand rows ``[T, …]``, or a fixed state ``[1, …]``, back to the memory `name`."""
        self.fixed |= {name} if fixed else set()
        self.names.append(name)
        self.outputs.append(tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryingScope(Scope):
    """A scope whose layers go on from what a sequence remembers. Layers on more than two axes do not remember."""

    carried: Carried

    def emit(self, spec: LayerSpec, *inputs: int) -> int:
        """Emit a layer and return its output."""
        rule = _RULES.get(type(spec))
        if rule is None or spec.two_way or len(self.work.shape(inputs[0])) > 2:
            return Scope.emit(self, spec, *inputs)
        with self.work.at(self.path):
            return rule(self, spec, *inputs)

    def feed(self, shape: tuple[int, ...], feed: Feed, *, ids: bool = False) -> int:
        """Add an input that `feed` gives."""
        self.carried.feeds.append(feed)
        return self.work.input(f"{self.path} past", shape, "int32" if ids else "float32")


def _attention(scope: CarryingScope, spec: MultiHeadAttention, x: int) -> int:
    work, past, path = scope.work, scope.carried.room, scope.path
    count = work.shape(x)[0]
    turn = None
    if spec.rope is not None:
        rope, half = spec.rope, spec.rope.dim // 2

        def turned(part: int) -> int:
            return scope.feed((count, half), lambda _, at: rotation(rope, np.arange(at, at + count))[part])

        turn = turned(0), turned(1)
    q, *new = heads(scope, spec, x, turn)
    row = (spec.kv_heads, spec.width)
    both = []
    for name, rows in zip(("k", "v"), new, strict=True):
        scope.carried.keep(f"{path}/{name}", work.reshape(rows, (count, *row)))
        if past:
            before = scope.feed((past, *row), lambda memories, _, of=f"{path}/{name}": memories[of].first(past))
            rows = work.concat([work.reshape(before, (1, past, *row)), rows], 1)
        both.append(rows)
    mask = scope.feed((count, past + count), lambda _, at: _seen(spec, at, count, past))
    return attend(scope, spec, x, q, both[0], both[1], mask)


def _seen(spec: MultiHeadAttention, position: int, count: int, past: int) -> Array:
    """Which keys (columns: room for the past, then the new ones) each new row sees, 0 or 1."""
    new = np.arange(position, position + count)
    places = np.concatenate([np.arange(past), new])
    there = np.arange(past + count) >= past
    there[:position] = True
    distance = new[:, None] - places
    seen = there & (distance >= 0)
    return (seen if spec.window is None else seen & (distance < spec.window)).astype(np.float32)


def _recurrent(scope: CarryingScope, spec: Recurrent, x: int) -> int:
    work, size, p = scope.work, spec.hidden_size, scope.params(spec)
    start = np.zeros((1, size), np.float32)
    names = [f"{scope.path}/{name}" for name in spec.cell.states]
    states = [scope.feed((1, size), lambda m, at, of=of: m[of].first(1) if at else start) for of in names]
    every = recurrent(work, spec, scope.sequenced(linear(work, p, ("ih.",), x)), p, states)
    rows = [work.reshape(of, (work.shape(x)[0], size)) for of in every]
    for name, of in zip(names, rows, strict=True):
        length = work.shape(of)[0]
        scope.carried.keep(name, work.part(of, 0, length - 1, length), fixed=True)
    return rows[0]


def _position_embedding(scope: CarryingScope, spec: PositionEmbedding, x: int) -> int:
    work = scope.work
    count = work.shape(x)[0]

    def positions(_: Memories, at: int) -> Array:
        end = spec.offset + at + count
        if end > spec.num_embeddings:
            raise GenerationError(
                f"position {end - 1} is beyond the {spec.num_embeddings} learned positions", hint="shorten the context"
            )
        return np.arange(end - count, end, dtype=np.int32)

    table = scope.params(spec)["weight"]
    return work.binary("add", x, work.gather_rows(table, scope.feed((count,), positions, ids=True)))


def _gumbel(scope: CarryingScope, spec: GumbelSoftmax, x: int) -> int:
    count, width = scope.work.shape(x)

    def noise(_: Memories, at: int) -> Array:
        rows = [generator(spec.seed, at + t).gumbel(size=width) for t in range(count)]
        return np.array(rows, np.float32).reshape(count, width)

    logits = scope.work.binary("add", x, scope.feed((count, width), noise))
    return Scope.emit(scope, Softmax(temperature=spec.temperature, axis=spec.axis), logits)


_RULES: dict[type[LayerSpec], Callable[..., int]] = {
    MultiHeadAttention: _attention,
    RNN: _recurrent,
    LSTM: _recurrent,
    GRU: _recurrent,
    PositionEmbedding: _position_embedding,
    GumbelSoftmax: _gumbel,
}
