"""What a film of a network that learns shows, moment by moment, and the keyframes of its time.

`scripts/learning_film_svg.py` draws it, with the grid from ``learning_film_cells`` and the map from
``learning_film_plane``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.network import Coord, Network

STEP: Final = 0.45
"""Seconds from one moment to the next."""
COLOUR_NAMES: Final = "abc"
"""CSS variables of the colours of the classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is shown of one epoch.

    Attributes
    ----------
    accuracy : share of held-back points that are answered right
    plane : probability of each class over the plane, ``[side, side, classes]``
    probe : the point whose activity is shown
    answer : class of the probe, according to the network
    activity : root mean square of each layer's output for the probe
    """

    epoch: int
    accuracy: float
    plane: Array
    probe: tuple[float, float]
    answer: int
    activity: Mapping[Coord, float]

    @property
    def hue(self) -> str:
        """CSS that sets the colour of the answer."""
        return f"color:var(--{COLOUR_NAMES[self.answer]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFilm:
    """What is shown of a training run.

    Attributes
    ----------
    points, classes : the points of the map, and the class of each
    losses : mean loss of every epoch
    moments : in order of time; the last `hold` show the trained network
    reach : half of the side of the plane
    """

    network: Network
    points: Array
    classes: Array
    losses: Sequence[float]
    moments: Sequence[Moment]
    hold: int
    reach: float

    @property
    def learning(self) -> Sequence[Moment]:
        """The moments up to the first with the last weights."""
        return self.moments[: len(self.moments) - self.hold]

    @property
    def seconds(self) -> float:
        """Duration of the film, which then begins again."""
        return len(self.moments) * STEP

    @property
    def percent(self) -> float:
        """Length of a moment in percent of the film."""
        return 100 / len(self.moments)

    def time_of(self, epoch: int) -> float:
        """Return when an epoch ends, in percent of the film."""
        epochs = [moment.epoch for moment in self.learning]
        return self.percent * float(np.interp(epoch, epochs, range(len(epochs))))

    def starts_at(self, moment: int) -> str:
        """Return CSS for an animation that begins at a moment, and is under way from the first."""
        return f"animation-delay:{digits(moment * STEP - self.seconds)}s"


def digits(value: float) -> str:
    """Return a number with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def keyframes(name: str, states: Sequence[str]) -> str:
    """Return a CSS animation through states at equal distances, and back to the first."""
    stops: dict[str, list[str]] = {}
    for i, state in enumerate([*states, states[0]]):
        stops.setdefault(state, []).append(f"{digits(100 * i / len(states))}%")
    body = "".join(f"{','.join(at)}{{{state}}}" for state, at in stops.items())
    return f"@keyframes {name}{{{body}}}"
