"""Windows of images and pools."""

from __future__ import annotations

import math

import numpy as np

from tests.graph.formulas.elements import A, Attrs


def window_pairs(sizes: tuple[int, ...], at: Attrs) -> list[tuple[int, int, tuple[int, ...]]]:
    """Tap, window and place of every element that a window reads inside of the image."""
    found = []
    for tap, t in enumerate(np.ndindex(*at["kernel"])):
        for window, w in enumerate(np.ndindex(*at["counts"])):
            fields = zip(t, w, at["stride"], at["dilation"], at["before"], strict=True)
            place = tuple(s * j + d * i - b for i, j, s, d, b in fields)
            if all(0 <= p < n for p, n in zip(place, sizes, strict=True)):
                found.append((tap, window, place))
    return found


def unfold(xs: list[A], at: Attrs) -> list[A]:
    n, c, *sizes = xs[0].shape
    y = np.zeros((n, c, math.prod(at["kernel"]), math.prod(at["counts"])))
    for tap, window, place in window_pairs(tuple(sizes), at):
        y[:, :, tap, window] = xs[0][(slice(None), slice(None), *place)]
    return [y.reshape(n, -1, y.shape[-1]) if n else y.reshape(0, c * y.shape[2], y.shape[3])]


def fold(xs: list[A], at: Attrs) -> list[A]:
    n, deep, windows = xs[0].shape
    taps = math.prod(at["kernel"])
    columns = xs[0].reshape(n, deep // taps, taps, windows)
    y = np.zeros((n, deep // taps, *at["sizes"]))
    for tap, window, place in window_pairs(at["sizes"], at):
        y[(slice(None), slice(None), *place)] += columns[:, :, tap, window]
    return [y]


def pool_max(xs: list[A], at: Attrs) -> list[A]:
    """Tap by tap: a later one wins where it is larger, or the first NaN."""
    y, tap = (np.full((*xs[0].shape[:2], *at["counts"]), v) for v in (-np.inf, 0.0))
    everywhere = (slice(None), slice(None))
    for t, window, place in window_pairs(xs[0].shape[2:], at):
        at_window = (*everywhere, *np.unravel_index(window, at["counts"]))
        new, old = xs[0][(*everywhere, *place)], y[at_window]
        wins = (new > old) | (np.isnan(new) & ~np.isnan(old))
        y[at_window], tap[at_window] = np.where(wins, new, old), np.where(wins, t, tap[at_window])
    return [y, tap]


def pool_back(xs: list[A], at: Attrs) -> list[A]:
    """Each window's number to all its elements, or to that of its tap."""
    y = np.zeros((*xs[0].shape[:2], *at["sizes"]))
    for t, window, place in window_pairs(at["sizes"], at):
        at_window = (slice(None), slice(None), *np.unravel_index(window, at["counts"]))
        y[(slice(None), slice(None), *place)] += xs[0][at_window] * (xs[1][at_window] == t if len(xs) > 1 else 1)
    return [y]


def pool_sum(xs: list[A], at: Attrs) -> list[A]:
    n, c = xs[0].shape[:2]
    columns = unfold(xs, at)[0]
    return [columns.reshape(n, c, math.prod(at["kernel"]), columns.shape[2]).sum(2).reshape(n, c, *at["counts"])]
