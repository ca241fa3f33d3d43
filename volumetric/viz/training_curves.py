"""Curves of a training run over its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volumetric.base.errors import SpecError
from volumetric.train.training_events import EpochEvent
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DECADES = 30
"""Ratio of the largest to the smallest loss from which the axis is logarithmic."""


def training_curves(history: Sequence[EpochEvent], title: str = "training") -> Figure:
    """Draw the loss of each epoch; also that of validation data and the accuracy, if the run has them.

    The axis of losses is logarithmic if they span more than a factor of 30.

    Parameters
    ----------
    history : events of epochs, as `TrainResult.history`

    Raises
    ------
    SpecError : there are no epochs
    UnsupportedError : matplotlib is not installed
    """
    if not history:
        raise SpecError("the history has no epoch", hint="train at least one epoch")
    epochs = [event.epoch + 1 for event in history]
    figure = new_figure(width=6.4, height=3.2)
    axes = figure.add_subplot()
    axes.plot(epochs, [event.loss for event in history], color="#2166ac", label="loss")
    judged = [(event.epoch + 1, event.validation_loss) for event in history if event.validation_loss is not None]
    if judged:
        axes.plot(*zip(*judged, strict=True), color="#b2182b", label="validation loss")
    losses = [event.loss for event in history if event.loss > 0]
    if losses and max(losses) > _DECADES * min(losses):
        axes.set_yscale("log")
    axes.set(xlabel="epoch", ylabel="loss", title=title)
    right = [(event.epoch + 1, event.accuracy) for event in history if event.accuracy is not None]
    if right:
        other = axes.twinx()
        other.plot(*zip(*right, strict=True), color="#1b7837", linestyle="--", label="accuracy")
        other.set(ylabel="accuracy", ylim=(0, 1.02))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    axes.grid(alpha=0.3)
    return figure
