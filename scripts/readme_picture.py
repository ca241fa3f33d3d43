"""The picture at the top of README: a grid of layers learns which arm of a spiral a point lies on.

``python -m scripts.readme_picture`` trains the network and writes docs/grid_that_learns.svg; nothing in it is drawn by
hand. `learn` does the training and records what is shown, `film_svg` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import volumetric
from scripts.learning_film import LearningFilm, Moment
from scripts.learning_film_svg import film_svg
from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.layers import Dense
from volumetric.network import Network, Params
from volumetric.observe import record
from volumetric.train import train

PICTURE = Path(__file__).parents[1] / "docs/grid_that_learns.svg"
ARMS, REACH = 3, 1.12
"""Number of arms, and half of the side of the plane that is shown."""


def arm_points(samples: int, *, noise: float, seed: int) -> tuple[Array, Array]:
    """Return points on three arms that make 1.1 turns, float32 ``[samples, 2]``, and the arm of each."""
    random = rng.generator(seed)
    arm = np.arange(samples) % ARMS
    part = random.uniform(0.02, 1, samples)
    return arm_place(part, arm) + noise * random.standard_normal((samples, 2)).astype(np.float32), arm


def arm_place(part: Array, arm: Array) -> Array:
    """Return the points that are `part` (0 … 1) of the area away from the middle, on their arms."""
    radius = np.sqrt(part)
    angle = 2 * np.pi * (1.1 * radius + arm / ARMS)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)


def probe_path(count: int) -> Array:
    """Return the points whose way through the grid is shown: four along an arm, then four along the next."""
    number = np.arange(count)
    return arm_place(0.14 + 0.24 * (number % 4), number // 4 % ARMS)


def learn(
    network: Network, *, epochs: int, moments: int, hold: int, samples: int = 600, side: int = 112, seed: int = 1
) -> LearningFilm:
    """Train the network and record it.

    Parameters
    ----------
    moments : number of epochs to record, closer to each other at the beginning
    hold : number of further points that the trained network answers at the end
    side : width and height of the map of decisions
    """
    x, y = arm_points(samples, noise=0.025, seed=0)
    held_x, held_y = arm_points(samples // 2, noise=0.025, seed=1)
    by_epoch: list[Params] = []

    def right(params: Params) -> float:
        """Keep the weights of the epoch; return the share of points that are answered wrong."""
        by_epoch.append(params)
        return 1 - share_right(network, params, held_x, held_y)

    result = train(
        network, x, y, epochs=epochs, lr=0.002, loss="cross_entropy", optimiser="adam", batch_size=60, seed=seed,
        metric=right, device="reference", progress=False,
    )  # fmt: skip
    shown = 1 + np.rint((epochs - 1) * np.linspace(0, 1, moments) ** 1.25).astype(int)
    probes = probe_path(moments + hold)
    losses = result.history["loss"]
    recorded = [
        moment_of(network, by_epoch[epoch - 1], probes[i : i + 1], epoch=int(epoch), side=side, held=(held_x, held_y))
        for i, epoch in enumerate([*shown, *[epochs] * hold])
    ]
    return LearningFilm(
        network=network,
        points=held_x,
        classes=held_y,
        losses=losses,
        moments=recorded,
        hold=hold,
        reach=REACH,
    )


def share_right(network: Network, params: Params, x: Array, arms: Array) -> float:
    """Return the share of points for which the network names the arm."""
    return float((volumetric.predict(network, params, x, device="reference").argmax(1) == arms).mean())


def moment_of(
    network: Network, params: Params, probe: Array, *, epoch: int, side: int, held: Sequence[Array]
) -> Moment:
    """Ask the network for every place of the plane, and record the activity of its layers for one of them."""
    along = np.linspace(-REACH, REACH, side, dtype=np.float32)
    plane = np.stack(np.meshgrid(along, -along), -1).reshape(-1, 2)
    logits = volumetric.predict(network, params, np.concatenate([plane, probe]), device="reference").astype(np.float64)
    chance = np.exp(logits - logits.max(1, keepdims=True))
    chance /= chance.sum(1, keepdims=True)
    activity = record(network, probe[None], params=params, device="reference").values()[0]
    return Moment(
        epoch=epoch,
        accuracy=share_right(network, params, held[0], held[1]),
        plane=chance[:-1].reshape(side, side, -1),
        probe=(float(probe[0, 0]), float(probe[0, 1])),
        answer=int(chance[-1].argmax()),
        activity=dict(zip(network.layers, activity.tolist(), strict=True)),
    )


def main() -> None:
    """Train a grid of 64 layers and write the picture."""
    network = volumetric.cube(4, 4, 4, Dense(8, activation="tanh"), neighbours="past", inputs=2, outputs=ARMS)
    film = learn(network, epochs=80, moments=28, hold=10)
    PICTURE.write_text(film_svg(film), encoding="utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB, {film.moments[-1].accuracy:.1%} right")


if __name__ == "__main__":
    main()
