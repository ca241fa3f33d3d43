"""Fronts of a run with several objectives, over its generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.viz.curves import expect_some
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fronts(generations: Sequence[dict[str, Any]], title: str = "front") -> Figure:
    """Draw the first two objectives of what nothing beat, in up to five generations, the last one strongest.

    Parameters
    ----------
    generations : what `FrontEvaluated` events say, as plain values

    Raises
    ------
    SpecError : there are none
    """
    expect_some(generations)
    figure = new_figure(width=7, height=4.5)
    axes = figure.add_subplot()
    chosen = np.unique(np.linspace(0, len(generations) - 1, min(5, len(generations))).round().astype(int)).tolist()
    for place, number in enumerate(chosen):
        points = np.array(generations[number]["front"], np.float64)
        points = points if points.shape[1] > 1 else np.column_stack([points, np.zeros(len(points))])
        strength = 0.25 + 0.75 * (place + 1) / len(chosen)
        axes.plot(
            points[:, 0], points[:, 1], "o-", color="#2166ac", alpha=strength, linewidth=1, markersize=4,
            drawstyle="steps-pre", label=f"generation {generations[number]['generation']}",
        )  # fmt: skip
    axes.set(xlabel="first objective", ylabel="second objective", title=title)
    axes.legend()
    axes.grid(alpha=0.3)
    return figure
