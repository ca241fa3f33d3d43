"""Losses, updates, dropout and noise."""

from __future__ import annotations

import math

import numpy as np

from tests.graph.formulas.elements import A, Attrs
from volumetric.train.losses import LOSSES
from volumetric.train.optim import OPTIMISERS


def loss(xs: list[A], at: Attrs) -> list[A]:
    fields = {k: v for k, v in at.items() if k != "name"}
    terms = LOSSES[at["name"]](**fields).terms(*xs)
    return [np.array([terms.total]), np.array([terms.count]), terms.gradient]


def update(xs: list[A], at: Attrs) -> list[A]:
    w, g, *slots, scalars = xs
    if scalars[4] == 0:
        return [w, *slots]
    fields = {k: v for k, v in at.items() if k not in ("name", "in_place")}
    optimiser = OPTIMISERS[at["name"]](**fields)
    step = 1 if scalars[2] == 1 or not np.any(slots) else 4
    before = dict(zip(optimiser.slots, slots, strict=True))
    new, after = optimiser.update(w, g * scalars[1], before, step=step, rate=scalars[0])
    return [new, *(after[name] for name in optimiser.slots)]


def all_hashed(*words: int) -> list[int]:
    """PCG4D in Python's own integers."""
    v = [(n * 1664525 + 1013904223) % 2**32 for n in words]
    for last in (False, True):
        for a, b, c in ((0, 1, 3), (1, 2, 0), (2, 0, 1), (3, 1, 2)):
            v[a] = (v[a] + v[b] * v[c]) % 2**32
        v = v if last else [n ^ n >> 16 for n in v]
    return v


def hashed(*words: int) -> int:
    return all_hashed(*words)[0]


def dropout(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, key = xs
    y = np.zeros(x.shape)
    for i, place in enumerate(np.ndindex(x.shape)):
        if hashed(i, at["stream"], *(int(k) % 2**32 for k in key)) >> 8 >= at["p"] * 2**24:
            y[place] = x[place] / (1 - at["p"])
    return [y]


def gumbel(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, positions = xs
    y = np.array(x)
    for t, i in np.ndindex(x.shape):
        n = hashed(i, int(positions[t]), at["seed"] % 2**32, at["seed"] >> 32) >> 9
        y[t, i] -= math.log(-math.log((n + 0.5) / 2**23))
    return [y]


def noisy(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, key = xs
    y = np.array(x)
    for i, place in enumerate(np.ndindex(x.shape)):
        words = all_hashed((at["first"] + i) % 2**32, at["stream"], *(int(k) % 2**32 for k in key))
        u, v = (((n >> 9) + 0.5) / 2**23 for n in words[:2])
        y[place] += math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
    return [y]
