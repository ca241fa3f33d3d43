"""What training gave, and where it is meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetric._typing import Array
from volumetric.train.by_output import Tally, Terms
from volumetric.train.events import EpochEvent
from volumetric.weights import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What training gave.

    Attributes
    ----------
    params : weights after the last update
    best : weights with the best validation loss; `params` without validation data
    reason : why it ended: ``"epochs"``, ``"max_steps"``, ``"patience"`` or ``"interrupted"``
    steps : updates, those before a resume included
    history : one event for each epoch, those before a resume included. An epoch that `max_steps` or an interrupt ends
        has one, too, of the updates until then; resumed, it is told as a whole
    overlays : the low-rank factors by key where those were trained, else empty; `params` has them merged in
    """

    params: Params
    best: Params
    reason: str
    steps: int
    history: tuple[EpochEvent, ...]
    overlays: Mapping[str, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Where a run is: the numbers of the epoch and of the next batch in it, and what it must remember."""

    epoch: int = 0
    batch: int = 0
    terms: dict[str, tuple[float, float]] = field(default_factory=dict)
    best_loss: float = math.inf
    epochs_since_best: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        """Sums and numbers of the losses' terms in the epoch so far."""
        return Tally({name: Terms(*of) for name, of in self.terms.items()})
