"""Events of training, as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from volumetric.train.learner import LayerTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One update.

    Attributes
    ----------
    step : its number, from 1
    epoch : number of the epoch, from 0
    loss : before the update; a mean or a sum, according to the loss
    losses : unweighted loss by output, if several outputs have losses
    rate : learning rate
    gradient_norm : before clipping; infinite if the update was skipped, see `StepReport`
    clipped : whether gradients were scaled down
    seconds : duration of the update
    """

    event: ClassVar[str] = "step"
    detail: ClassVar[int] = 2

    step: int
    epoch: int
    loss: float
    rate: float
    gradient_norm: float
    clipped: bool
    seconds: float
    losses: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        loss = f"{self.loss:.6g}{_parts(self.losses, '.6g')}"
        return f"step {self.step}: loss {loss}, gradient norm {self.gradient_norm:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEvent:
    """Budgets and gaps of the layers in one update by target propagation.

    Attributes
    ----------
    step, epoch : of the update
    layers : see `LayerTarget`, in the order of the network
    """

    event: ClassVar[str] = "targets"
    detail: ClassVar[int] = 2

    step: int
    epoch: int
    layers: tuple[LayerTarget, ...]

    def __str__(self) -> str:
        layers = ", ".join(f"{of.where} budget {of.budget:.3f} gap {of.gap:.3g}" for of in self.layers)
        return f"step {self.step}: {layers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEvent:
    """End of an epoch.

    Attributes
    ----------
    step : updates so far
    loss : over all terms of the epoch, each computed before its update
    validation_loss : after the epoch, or None without validation data
    improved : whether the validation loss is the best so far
    metric : value of the caller's metric, or None without one
    accuracy : fraction of samples classified correctly, if `TrainConfig.accuracy` is set, for the first output with
        classes
    losses, validation_losses, accuracies : by output, if several outputs have losses; losses are unweighted
    """

    event: ClassVar[str] = "epoch"
    detail: ClassVar[int] = 1

    step: int
    epoch: int
    loss: float
    validation_loss: float | None = None
    improved: bool = False
    metric: float | None = None
    accuracy: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    validation_losses: Mapping[str, float] = field(default_factory=dict)
    accuracies: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        validation_parts = _parts(self.validation_losses, ".6g")
        validation = (
            "" if self.validation_loss is None else f", validation loss {self.validation_loss:.6g}{validation_parts}"
        )
        metric = "" if self.metric is None else f", metric {self.metric:.6g}"
        right = "" if self.accuracy is None else f", accuracy {self.accuracy:.2%}{_parts(self.accuracies, '.2%')}"
        return f"epoch {self.epoch}: loss {self.loss:.6g}{_parts(self.losses, '.6g')}{validation}{metric}{right}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEvent:
    """End of training and its reason, as in `TrainResult`; or ``"diverged"`` and the non-finite value."""

    event: ClassVar[str] = "stop"
    detail: ClassVar[int] = 0

    step: int
    epoch: int
    reason: str
    where: str | None = None

    def __str__(self) -> str:
        return f"stopped at step {self.step}: {self.where or self.reason}"


def _parts(of: Mapping[str, float], form: str) -> str:
    """Numbers by output, in brackets."""
    return f" ({', '.join(f'{name} {value:{form}}' for name, value in of.items())})" if of else ""


@dataclass(frozen=True, slots=True)
class EpochLine:
    """The progress line of a training run.

    Attributes
    ----------
    epochs : number of epochs of the run
    """

    epochs: int

    def __call__(self, event: Event) -> str | None:
        """Return the line of an event; None for events that it does not show."""
        if isinstance(event, StepEvent):
            return f"epoch {event.epoch + 1}/{self.epochs}  loss {event.loss:.4g}"
        if not isinstance(event, EpochEvent):
            return None
        validation = "" if event.validation_loss is None else f"  validation {event.validation_loss:.4g}"
        right = "" if event.accuracy is None else f"  accuracy {event.accuracy:.1%}"
        return f"epoch {event.epoch + 1}/{self.epochs}  loss {event.loss:.4g}{validation}{right}"

    def part(self, event: Event) -> float | None:
        """Return the share of the epochs that have begun."""
        return (event.epoch + 1) / self.epochs if isinstance(event, StepEvent | EpochEvent) else None


Event: TypeAlias = StepEvent | TargetEvent | EpochEvent | StopEvent
TABLE: Final = (StepEvent, EpochEvent, StopEvent)
"""Events that fit into one row of a table; other events are nested."""
COLUMNS: Final = tuple(dict.fromkeys(["event", *(f.name for kind in TABLE for f in dataclasses.fields(kind))]))
