"""Rotations, scans and convolutions along a sequence, and attention."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tests.graph.formulas.elements import A, Attrs


def rope(xs: list[A], at: Attrs) -> list[A]:
    x, cos, sin = xs
    half = cos.shape[1]
    turn = cos + 1j * sin * (-1 if at["back"] else 1)
    z = (x[..., :half] + 1j * x[..., half : 2 * half]) * turn[None, :, None]
    return [np.concatenate([z.real, z.imag, x[..., 2 * half :]], -1)]


def linear_scan(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    u, a, *rest = xs
    batch, length, width = u.shape
    keep = rest[-1] if at["keep"] else np.ones((batch, length))
    factor = a if a.ndim == 3 else np.broadcast_to(a, u.shape)
    s = np.zeros(u.shape)
    for b, j in np.ndindex(batch, width):
        held = 0.0 if at["reverse"] else rest[0][b, j]
        for i in range(length):
            t = length - 1 - i if at["reverse"] else i
            reads = t + 1 if at["reverse"] else t  # the step whose factor meets what came before
            passed = keep[b, reads] * factor[b, reads, j] * held if reads < length else 0.0
            held = s[b, t, j] = passed + u[b, t, j]
    return [s]


def depthwise(xs: list[A], at: Attrs) -> list[A]:
    """Row by row, which tells what each sees."""
    x, weight, past, *rest = xs
    y = np.zeros(x.shape)
    keep = rest[-1] if at["resets"] else np.ones(x.shape[:2])
    for b, t in np.ndindex(x.shape[:2]):
        for lag, met in _rows_seen(x, past, keep, b, t, weight.shape[2]):
            y[b, t] += weight[:, 0, -1 - lag] * met
        y[b, t] += rest[0] if at["bias"] else 0
    return [y]


def _rows_seen(x: A, past: A, keep: A, b: int, t: int, taps: int) -> Iterator[tuple[int, A]]:
    for lag in range(taps):
        if lag and not (t - lag + 1 < 0 or keep[b, t - lag + 1]):
            return
        yield lag, x[b, t - lag] if lag <= t else past[b, t - lag]


def depthwise_back(xs: list[A], at: Attrs) -> list[A]:
    """Each product of a row and a weight hands back to both."""
    g, x, weight, past, *rest = xs
    keep = rest[-1] if at["resets"] else np.ones(x.shape[:2])
    g_x, g_weight, g_past = (np.zeros(of.shape) for of in (x, weight, past))
    for b, t in np.ndindex(x.shape[:2]):
        for lag, met in _rows_seen(x, past, keep, b, t, weight.shape[2]):
            (g_x if lag <= t else g_past)[b, t - lag] += weight[:, 0, -1 - lag] * g[b, t]
            g_weight[:, 0, -1 - lag] += met * g[b, t]
    return [g_x, g_weight, g_past, g.sum((0, 1))]


def cross_attend(xs: list[A], at: Attrs) -> list[A]:
    """Row by row, head by head."""
    table, asks, tells, *rest = xs
    known: list[A] = []
    if at["known"]:
        (wq, wo, bq, bo, *known), rest = rest[:6], rest[6:]
        weights, biases, seen = [wq, None, None, wo], [bq, None, None, bo], rest
    else:
        weights, biases, seen = rest[:4], rest[4:8], rest[8:]
    heads = at["heads"]
    width = table.shape[1] // heads
    y = np.zeros((*asks.shape, table.shape[1]))
    for e, part, i in np.ndindex(asks.shape):
        told = [m for m in range(tells.shape[2]) if not seen or seen[0][m, i]]
        if known:
            keys, values = (one[tells[e, part]] for one in known)
        else:
            keys, values = (table[tells[e, part]] @ weights[side][e] + biases[side][e] for side in (1, 2))
        asked, read = table[asks[e, part, i]] @ weights[0][e] + biases[0][e], np.zeros(table.shape[1])
        for h in range(heads if told else 0):
            own = slice(h * width, (h + 1) * width)
            powers = np.array([math.exp(asked[own] @ keys[m, own] / math.sqrt(width)) for m in told])
            read[own] = sum(p * values[m, own] for p, m in zip(powers / powers.sum(), told, strict=True))
        y[e, part, i] = read @ weights[3][e] + biases[3][e]
    return [y]


def weigh_rows(xs: list[A], at: Attrs) -> list[A]:
    rows = [*xs[0], *xs[1]]
    y = np.zeros((len(xs[2]), xs[0].shape[1]))
    for i, k in np.ndindex(xs[2].shape):
        if xs[3][i, k]:
            y[i] += xs[3][i, k] * rows[xs[2][i, k]]
    return [y]


def distance_attend(xs: list[A], at: Attrs) -> list[A]:
    """From a list of the rows that there have been."""
    content, position, k, v, r, keys, values, age, *keep = xs
    batch, length, inner = content.shape
    memory, heads = keys.shape[1], at["heads"]
    y, ends = np.zeros(content.shape), [np.zeros(keys.shape), np.zeros(keys.shape), np.zeros(age.shape)]
    for b in range(batch):
        first = memory - int(age[b, 0])
        rows = list(zip(keys[b, first:], values[b, first:], strict=True))
        for t in range(length):
            if keep and not keep[0][b, t]:
                rows = []
            rows = [*rows, (k[b, t], v[b, t])][-memory - 1 :]
            for h in range(heads):
                own = slice(h * inner // heads, (h + 1) * inner // heads)
                codes = r[h, memory + 1 - len(rows) :]
                logits = [
                    (content[b, t, own] @ key[own] + position[b, t, own] @ code) / math.sqrt(inner // heads)
                    for (key, _), code in zip(rows, codes, strict=True)
                ]
                powers = np.exp(np.array(logits) - max(logits))
                y[b, t, own] = sum(p * value[own] for p, (_, value) in zip(powers / powers.sum(), rows, strict=True))
            rows = rows[-memory:]
        for i, (key, value) in enumerate(reversed(rows)):
            ends[0][b, -1 - i], ends[1][b, -1 - i] = key, value
        ends[2][b] = len(rows)
    return [y, *ends]


def rotate_scan(xs: list[A], at: Attrs) -> list[A]:
    """With complex numbers."""
    u, g, phi, *rest = xs
    batch, length, wide = u.shape
    keep = rest[-1] if at["keep"] else np.ones((batch, length))
    width, s = wide // 2, np.zeros(u.shape)
    for b, j in np.ndindex(batch, width):
        by = complex(g[j], -phi[j] if at["reverse"] else phi[j])
        held = 0j if at["reverse"] else complex(rest[0][b, j], rest[0][b, j + width])
        for i in range(length):
            t = length - 1 - i if at["reverse"] else i
            reads = t + 1 if at["reverse"] else t
            held = (keep[b, reads] * by * held if reads < length else 0j) + complex(u[b, t, j], u[b, t, j + width])
            s[b, t, j], s[b, t, j + width] = held.real, held.imag
    return [s]


def edge_attend(xs: list[A], at: Attrs) -> list[A]:
    """Edge by edge."""
    q, kv, bias, starts, senders, *_ = xs
    heads, key = at["heads"], q.shape[2] // at["heads"]
    value = kv.shape[2] // heads - key
    m, weights = np.zeros((len(q), kv.shape[1], heads * value)), np.zeros((len(senders), kv.shape[1], heads))
    for r, b, a in np.ndindex(len(q), kv.shape[1], heads):
        own = range(starts[r], starts[r + 1])
        ask = q[r, b % q.shape[1], a * key : (a + 1) * key]
        scores = np.array(
            [kv[senders[e], b, a * key : (a + 1) * key] @ ask / key**0.5 + bias[e, a % bias.shape[1]] for e in own]
        )
        if not np.isfinite(scores).any():
            continue
        weights[own, b, a] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        for e in own:
            there = slice(heads * key + a * value, heads * key + (a + 1) * value)
            m[r, b, a * value : (a + 1) * value] += weights[e, b, a] * kv[senders[e], b, there]
    return [m, weights]


def edge_attend_grad(xs: list[A], at: Attrs) -> list[A]:
    """Edge by edge, with the Jacobian of a softmax; the ways back from senders are not used."""
    g, weights, q, kv, starts, senders, readers, *_ = xs
    heads, key = at["heads"], q.shape[2] // at["heads"]
    value = kv.shape[2] // heads - key
    slope, g_q, g_kv = np.zeros(weights.shape), np.zeros(q.shape), np.zeros(kv.shape)
    for b, a in np.ndindex(kv.shape[1], heads):
        keys = slice(a * key, (a + 1) * key)
        values, out = slice(heads * key + a * value, heads * key + (a + 1) * value), slice(a * value, (a + 1) * value)
        for r in range(len(q)):
            own = slice(starts[r], starts[r + 1])
            w = weights[own, b, a]
            slope[own, b, a] = (np.diag(w) - np.outer(w, w)) @ (kv[senders[own], b, values] @ g[r, b, out])
        for e, (r, s) in enumerate(zip(readers, senders, strict=True)):
            g_q[r, b % q.shape[1], keys] += slope[e, b, a] * kv[s, b, keys] / key**0.5
            g_kv[s, b, keys] += slope[e, b, a] * q[r, b % q.shape[1], keys] / key**0.5
            g_kv[s, b, values] += weights[e, b, a] * g[r, b, out]
    return [slope, g_q, g_kv]
