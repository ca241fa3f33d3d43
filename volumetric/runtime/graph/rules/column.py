"""The rule of columns: experts side by side, and the mixture that each row takes of them."""

from __future__ import annotations

import numpy as np

from volumetric.layers import Column
from volumetric.runtime.graph.rules.base import Scope, flat, linear, rule, scaled
from volumetric.runtime.graph.rules.containers import joined
from volumetric.runtime.graph.rules.scaffolds import inside, own_params

LEAST = float(np.finfo(np.float32).min)
"""What is below is -inf."""


@rule("column")
def _column(scope: Scope, spec: Column, x: int) -> int:
    if len(spec.experts) == 1:
        return inside(scope, "0", spec.experts[0], x)
    work, p, shape = scope.work, own_params(scope, spec), scope.work.shape(x)
    with work.at(scope.path, mixes=False):
        u = work.reshape(work.norm(flat(work, x), p["norm.weight"], kind="rms", eps=spec.eps), shape)
    made = [inside(scope, str(i), expert, u) for i, expert in enumerate(spec.experts)]
    with work.at(scope.path, mixes=False):
        x, u, *made = (flat(work, of) for of in (x, u, *made))
        less_u = scaled(work, u, -1.0)
        changes = [joined(work, (of, less_u), "add") for of in made]
        own, seen = _mixed(scope, spec, p, u, changes)
        mixed = linear(work, p, ("mix.out.",), linear(work, p, ("mix.v.",), seen))
        whole = joined(work, (own, mixed, u, scaled(work, x, -1.0)), "add")
        head = linear(work, p, ("head.down.",), linear(work, p, ("head.up.",), whole, activation="gelu"))
        parts = (work.binary("mul", of, p[name]) for of, name in ((whole, "alpha"), (head, "alpha_head")))
        return work.reshape(work.add(x, *parts), shape)


def _mixed(scope: Scope, spec: Column, p: dict[str, int], u: int, changes: list[int]) -> tuple[int, int]:
    """Emit ``Σᵢ aᵢ Δᵢ`` and ``Σᵢⱼ aᵢ sᵢⱼ Δⱼ``: what follows of the mixer is products that are the same for all."""
    work, count, keys = scope.work, len(changes), spec.keys
    rows, width = work.shape(u)
    # First what devices run on rows: what follows is none of that, and stays together.
    asked = linear(work, p, ("mix.q.",), u)
    read = work.concat([linear(work, p, ("mix.k.",), of) for of in changes], 1)
    every = work.concat(changes, 1)
    local = linear(work, p, ("refine.q.",), u) if spec.refine else None
    asked, read = work.reshape(asked, (rows, 1, keys)), work.reshape(read, (rows, count, keys))
    every = work.reshape(every, (rows, count, width))
    prior = _prior(scope, spec, p)
    asked = work.binary("add", asked, work.reshape(p["mix.bias"], (1, count, keys)))
    scores = work.affine(work.gemm(asked, read, trans_b=True), keys**-0.5)
    if spec.prune and spec.chosen is not None:
        dropped = work.binary("greater", work.scalar(LEAST), prior)
        scores = work.binary("mask", scores, work.reshape(work.affine(dropped, -1.0, 1.0), (1, 1, count)))
    logits = work.broadcast(prior, (rows, count))
    if local is not None:
        table = work.reshape(p["refine.keys"], (1, count, spec.local_keys))
        refined = work.gemm(work.reshape(local, (1, *work.shape(local))), table, trans_b=True)
        logits = work.add(prior, work.affine(work.reshape(refined, (rows, count)), spec.refine_factor))
    a = work.emit("softmax", (logits,))[0]
    if spec.balance and scope.training is not None:
        scope.training.penalties.append(_balance(scope, spec, a))
    a = work.reshape(a, (rows, 1, count))
    looks = work.reshape(work.softmax(work.reshape(scores, (rows * count, count))), (rows, count, count))
    both = work.concat((a, work.gemm(a, looks)), 1)
    own, seen = work.split(work.gemm(both, every), (1, 1), 1)
    return work.reshape(own, (rows, width)), work.reshape(seen, (rows, width))


def _prior(scope: Scope, spec: Column, p: dict[str, int]) -> int:
    """Emit the scores that experts have for all rows alike, ``[1, E]``, -inf for those without a weight."""
    work, count, keys = scope.work, len(spec.experts), spec.keys
    context = work.reshape(p["prior.context"], (1, 1, spec.embed_dim))
    asked = work.gemm(context, work.reshape(p["prior.q.weight"], (1, keys, spec.embed_dim)), trans_b=True)
    table = work.gemm(
        work.reshape(p["prior.keys"], (1, count, keys)),
        work.reshape(p["prior.k.weight"], (1, keys, keys)),
        trans_b=True,
    )
    scores = work.reshape(work.gemm(asked, table, trans_b=True), (1, count))
    scores = work.affine(scores, spec.prior_factor)
    kept = scores if spec.chosen is None else work.keep_largest(scores, spec.chosen)
    return work.affine(kept, 1 / spec.temperature)


def _balance(scope: Scope, spec: Column, a: int) -> int:
    """Emit what one-sided use of experts adds to the loss, [1]; as a mean over rows, times their number."""
    work = scope.work
    each = scope.sequenced(a)
    length, count = work.shape(each)[1:]
    squares = work.reduce(work.unary(work.reduce(each, "mean", (1,)), "square"), "sum", (0, 1, 2))
    return work.affine(work.reshape(squares, (1,)), spec.balance * count * length)
