"""Balance a pole on a cart: an environment of a few lines of NumPy, and the fitness of those who live in it.

The equations of motion are those of Barto, Sutton and Anderson (1983). `python balance.py` shows the champion at work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.evolution import batched

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
STEPS, STARTS = 500, 5
BEGIN = np.random.default_rng(1).uniform(-0.05, 0.05, (STARTS, 4))


def move(state: Any, force: Any) -> Any:
    """Return states [..., (position, speed, angle, turn)] a fiftieth of a second later."""
    _, speed, angle, turn = np.moveaxis(state, -1, 0)
    mass = CART + POLE
    push = (force + POLE * HALF_LENGTH * turn**2 * np.sin(angle)) / mass
    lever = HALF_LENGTH * (4 / 3 - POLE * np.cos(angle) ** 2 / mass)
    turning = (GRAVITY * np.sin(angle) - np.cos(angle) * push) / lever
    speeding = push - POLE * HALF_LENGTH * turning * np.cos(angle) / mass
    change = np.stack([speed, speeding, turn, turning], -1)
    return state + SECONDS * change


def stands(state: Any) -> Any:
    """Whether the cart is on its track, and the pole within 12 degrees."""
    return (np.abs(state[..., 0]) < 2.4) & (np.abs(state[..., 2]) < np.radians(12))


@batched
def balance(cohort: Any) -> Any:
    """Return the fitness of each genome of a generation: the share of the steps for which the pole stands, 0 to 1."""
    state = np.tile(BEGIN, (len(cohort), 1, 1))  # [genomes, starts, 4]: all genomes play at the same time
    standing = np.ones(state.shape[:2], bool)
    steps = np.zeros(state.shape[:2])
    for _ in range(STEPS):
        force = np.where(cohort.activate(state)[..., 0] > 0, FORCE, -FORCE)
        state = np.where(standing[..., None], move(state, force), state)
        standing &= stands(state)
        steps += standing
        if not standing.any():
            break
    return steps.mean(1) / STEPS


def show(directory: str) -> None:
    """Print where the cart and the pole of a saved champion are, from one new start."""
    import volumetric

    model = volumetric.load(directory, device="reference")
    state = np.array([0.5, 0.0, 0.08, 0.0])
    for step in range(101):
        if step % 10 == 0:
            line = [" "] * 49
            line[round(24 + 10 * state[0])] = "#"
            line[round(24 + 10 * state[0] + 50 * np.sin(state[2]))] = "o"
            print(f"{step * SECONDS:4.1f} s |{''.join(line)}|")
        force = FORCE if model.predict(state[None])[0, 0] > 0 else -FORCE
        state = move(state, force)


if __name__ == "__main__":
    show("evolution/champion")
