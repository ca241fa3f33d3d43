"""Curves of a run of evolution over generations: fitness, stacked species, and fronts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.base.reporting import event_fields
from volumetric.evolution.reporters import Evaluated
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = 20


def fitness_curves(generations: Sequence[Evaluated | dict[str, Any]], title: str = "fitness") -> Figure:
    """Draw best, mean and worst fitness of each generation, and the standard deviation around the mean.

    Parameters
    ----------
    generations : `Evaluated` events, as `EvolutionResult.history`, or their fields as plain values

    Raises
    ------
    SpecError : there are no generations
    """
    expect_some(generations)
    events = _fields_of(generations)
    x = [event["generation"] for event in events]
    best, mean, worst, spread = (
        np.array([event[name] for event in events], np.float64) for name in ("best", "mean", "worst", "stdev")
    )
    figure = new_figure(width=8, height=4.5)
    axes = figure.add_subplot()
    axes.fill_between(x, mean - spread, mean + spread, alpha=0.2, linewidth=0, label="mean ± stdev")
    axes.plot(x, best, label="best", linewidth=2)
    axes.plot(x, mean, label="mean")
    axes.plot(x, worst, label="worst", linewidth=0.8, linestyle=":")
    if len(x) > 1:
        low = float(np.percentile(worst, 10))
        high = float(best.max())
        margin = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + margin)  # so that one failed genome does not flatten the rest
    axes.set(xlabel="generation", ylabel="fitness", title=title)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    return figure


def species_stack(generations: Sequence[Evaluated | dict[str, Any]], title: str = "species") -> Figure:
    """Draw the sizes of all species over the generations, stacked, the oldest at the bottom; see `fitness_curves`.

    Raises
    ------
    SpecError : there are no generations
    """
    expect_some(generations)
    events = _fields_of(generations)
    x = [event["generation"] for event in events]
    sizes = [{int(key): int(value) for key, value in event["species"].items()} for event in events]
    ids = sorted({key for members in sizes for key in members})
    table = np.array([[members.get(key, 0) for members in sizes] for key in ids], np.float64)
    figure = new_figure(width=8, height=4.5)
    axes = figure.add_subplot()
    if len(x) == 1:  # a stack needs two ends
        x, table = [x[0], x[0] + 1], np.repeat(table, 2, axis=1)
    from matplotlib import colormaps

    colours = colormaps["tab20"].resampled(_COLOURS)
    axes.stackplot(x, table, colors=[colours(key % _COLOURS) for key in ids], linewidth=0)
    axes.set(xlabel="generation", ylabel="genomes", title=f"{title}: {len(ids)} in all", xlim=(x[0], x[-1]))
    axes.set_ylim(0, table.sum(axis=0).max())
    return figure


def _fields_of(generations: Sequence[Evaluated | dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(event_fields(event)) if isinstance(event, Evaluated) else event for event in generations]


def expect_some(generations: Sequence[object]) -> None:
    """Raise `SpecError` if there is no generation."""
    if not generations:
        raise SpecError("the history has no generation", hint="run at least one generation")


def fronts(generations: Sequence[dict[str, Any]], title: str = "front") -> Figure:
    """Draw the first two objectives of the Pareto fronts of up to five generations, the last one darkest.

    Parameters
    ----------
    generations : fields of `FrontEvaluated` events, as plain values

    Raises
    ------
    SpecError : there are no generations
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
