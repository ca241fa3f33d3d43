"""Compiled cart-pole: whole episodes of many genomes without Python calls between steps.

Equations of Barto, Sutton & Anderson, "Neuronlike adaptive elements that can solve difficult learning control
problems", 1983, as corrected by Florian, "Correct equations for the dynamics of the cart-pole system", 2007, with the
constants, Euler steps and limits of Gymnasium's ``CartPole-v1``.
"""

from __future__ import annotations

import math

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.evolution.kernels.neat.linked_genomes import fire, update

_GRAVITY, _TOTAL_MASS, _POLE_MASS, _HALF_LENGTH = 9.8, 1.1, 0.1, 0.5
_FORCE, _SECONDS = 10.0, 0.02
_X_LIMIT, _ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360


@kernel
def push(body, force):
    """Move ``body`` (position, speed, angle, angular speed) by one step under `force`; True if the pole fell."""
    speed, angle, turn = body[1], body[2], body[3]
    cosine, sine = math.cos(angle), math.sin(angle)
    common = (force + _POLE_MASS * _HALF_LENGTH * turn * turn * sine) / _TOTAL_MASS
    turning = (_GRAVITY * sine - cosine * common) / (
        _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * cosine * cosine / _TOTAL_MASS)
    )
    body[1] = speed + _SECONDS * (common - _POLE_MASS * _HALF_LENGTH * turning * cosine / _TOTAL_MASS)
    body[0] += _SECONDS * speed
    body[3] = turn + _SECONDS * turning
    body[2] = angle + _SECONDS * turn
    return abs(body[0]) > _X_LIMIT or abs(body[2]) > _ANGLE_LIMIT


@kernel
def play(nodes, starts, sources, weights, order, outputs, recurrent, updates, bodies, limit, first, last, rewards):
    """Play one episode with each of the genomes ``first : last``, which have four inputs.

    Parameters
    ----------
    outputs : 1: push right if it is above 0; or 2: push right if the second is larger
    starts, sources, weights, order : from `link`
    recurrent, updates : whether genomes keep their node values, and number of updates in a step
    bodies : float64 [genomes, 4]; initial state of each body, overwritten
    limit : maximum steps of an episode
    rewards : float64 [genomes]; receives the number of steps
    """
    values = np.zeros(4 + nodes.shape[1])
    after = np.zeros(nodes.shape[1])
    for g in range(first, last):
        values[:] = 0.0
        body = bodies[g]
        steps = 0
        fell = False
        while steps < limit and not fell:
            for k in range(4):
                values[k] = np.float32(body[k])  # observations are float32
            if recurrent:
                update(nodes, g, starts, sources, weights, order, 4, updates, values, after)
            else:
                fire(nodes, g, starts, sources, weights, order, 4, values)
            right = values[4] > 0.0
            if outputs == 2:  # as argmax: the first of equal values, and NaN before all others
                right = values[4] == values[4] and not values[4] >= values[5]
            fell = push(body, _FORCE if right else -_FORCE)
            steps += 1
        rewards[g] = steps
