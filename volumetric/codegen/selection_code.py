"""Attention over the edges of a graph, rotations in time, and the choice of the largest, as loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from volumetric.base.errors import UnsupportedError
from volumetric.codegen.loop_writer import ArrayView, LoopWriter
from volumetric.codegen.operation_code import CODE, Attrs


def _edge_attend(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    """Softmax over the edges of each receiver, head by head; the weights of edges are not returned."""
    q, kv, bias, starts, senders, *_ = x
    heads, most = attrs["heads"], max(attrs["most_in"], 1)
    receivers, batch, _ = y[0].shape
    keys, values = q.shape[2] // heads, y[0].shape[2] // heads
    wide, least = kv.shape[2], write.language.number(float("-inf"))
    scale = write.language.number(1 / math.sqrt(keys))
    integer = write.language.integer.format
    scores = write.array("scores", (most,))

    with write.loops([receivers, batch, heads]) as (r, b, h):
        top = write.let("top", least)
        first, end = starts.at((r, 1)), starts.at((r, 1), plus=1)
        with write.loop(most) as e, write.condition(f"{first} + {e} < {end}"):
            edge = integer(f"{first} + {e}")
            sender = integer(f"{senders.name}[{edge}]")
            dot = write.let("dot", "0.0")
            with write.loops([keys]) as (k,):
                left = q.at((r, q.strides[0]), (b, q.strides[1] if q.shape[1] > 1 else 0), (h, keys), (k, 1))
                right = kv.at((sender, kv.strides[0]), (b, wide), (h, keys), (k, 1))
                write.set(dot, f"{dot} + {left} * {right}")
            own = bias.at((edge, bias.shape[1]), (h, 1 if bias.shape[1] > 1 else 0))
            write.set(scores.at((e, 1)), f"{dot} * {scale} + {own}")
            write.set(top, write.word("max", top, scores.at((e, 1))))
        total = write.let("total", "0.0")
        with write.loop(most) as e, write.condition(f"{first} + {e} < {end}"):
            shifted = write.word("exp", f"{scores.at((e, 1))} - {top}")
            write.set(scores.at((e, 1)), write.choose(f"{scores.at((e, 1))} == {least}", "0.0", shifted))
            write.set(total, f"{total} + {scores.at((e, 1))}")
        with write.loop(most) as e, write.condition(f"{first} + {e} < {end}"):
            edge = integer(f"{first} + {e}")
            sender = integer(f"{senders.name}[{edge}]")
            with write.condition(f"{scores.at((e, 1))} != 0"), write.loops([values]) as (v,):
                target = y[0].at((r, y[0].strides[0]), (b, y[0].strides[1]), (h, values), (v, 1))
                value = kv.at((sender, kv.strides[0]), (b, wide), (h, values), (v, 1), plus=heads * keys)
                write.set(target, f"{target} + {scores.at((e, 1))} / {total} * {value}")


def _rotate_scan(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    if attrs["reverse"] or attrs["keep"]:
        raise UnsupportedError("rotate_scan in reverse or with resets cannot be written as source code")
    u, factor, angle, start = x
    batch, length, width = u.shape
    half = width // 2
    with write.loops([batch, half]) as (b, f):
        a = write.let("a", start.at((b, width), (f, 1)))
        c = write.let("c", start.at((b, width), (f, 1), plus=half))
        with write.loops([length]) as (t,):
            at = [(b, length * width), (t, width), (f, 1)]
            g, phi = factor.at((f, 1)), angle.at((f, 1))
            before = write.let("before", a)
            write.set(a, f"{g} * {before} - {phi} * {c} + {u.at(*at)}")
            write.set(c, f"{phi} * {before} + {g} * {c} + {u.at(*at, plus=half)}")
            write.set(y[0].at(*at), a)
            write.set(y[0].at(*at, plus=half), c)


def _keep_largest(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    rows, width = x[0].shape
    least = write.language.number(float("-inf"))
    with write.loops([rows, width]) as (r, i):
        own = x[0].at((r, width), (i, 1))
        larger = write.let("larger_ones", "0.0")
        with write.loops([width]) as (j,):
            other = x[0].at((r, width), (j, 1))
            with write.condition(f"{other} > {own}"):
                write.set(larger, f"{larger} + 1")
            with write.condition(write.both([f"{j} < {i}", f"{other} == {own}"])):  # the first of equal ones wins
                write.set(larger, f"{larger} + 1")
        dropped = write.both([f"{larger} >= {attrs['k']}", f"{own} == {own}"])
        write.set(y[0].at((r, width), (i, 1)), write.choose(dropped, least, own))


CODE["edge_attend"] = _edge_attend
CODE["rotate_scan"] = _rotate_scan
CODE["keep_largest"] = _keep_largest
