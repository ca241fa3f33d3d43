"""Events: what happens during training, as plain values."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One update.

    Attributes
    ----------
    step : its number, from 1
    epoch : number of the epoch, from 0
    loss : before the update; a mean or a sum, as the loss says
    rate : learning rate
    gradient_norm : before clipping
    clipped : whether gradients were scaled down
    seconds : time that it took
    """

    event: ClassVar[str] = "step"

    step: int
    epoch: int
    loss: float
    rate: float
    gradient_norm: float
    clipped: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEvent:
    """End of an epoch.

    Attributes
    ----------
    step : updates so far
    loss : over all terms of the epoch, each before the update that it led to
    validation_loss : after the epoch, or None without validation data
    improved : whether the validation loss is the best so far
    metric : what the caller's own measure gave, or None without one
    """

    event: ClassVar[str] = "epoch"

    step: int
    epoch: int
    loss: float
    validation_loss: float | None = None
    improved: bool = False
    metric: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEvent:
    """End of training, and why: as in `TrainResult`, or ``"diverged"`` and what was not finite."""

    event: ClassVar[str] = "stop"

    step: int
    epoch: int
    reason: str
    where: str | None = None


Event: TypeAlias = StepEvent | EpochEvent | StopEvent
COLUMNS: Final = tuple(
    dict.fromkeys(["event", *(f.name for kind in (StepEvent, EpochEvent, StopEvent) for f in dataclasses.fields(kind))])
)


def record(event: Event) -> dict[str, Any]:
    """Return an event as plain data; numbers that are not finite, which JSON cannot hold, as text."""

    def plain(value: Any) -> Any:
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {"event": event.event, **{key: plain(value) for key, value in dataclasses.asdict(event).items()}}
