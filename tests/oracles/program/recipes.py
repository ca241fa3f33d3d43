"""In NumPy: learning recipes: losses that regions have of their own, beside that of the task. In NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.oracles.base import Arrays
from tests.oracles.dense import affine
from tests.oracles.program.attention.heads import direction
from tests.oracles.program.carriers import layer_norm, own, predicted
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, sigmoid
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.graph.numeric.softmax import softmax
from volumetric.graph.operations.noise import dropout_mask
from volumetric.graph.operations.state_space import softplus
from volumetric.program.layer.program_facts import Facts, Place
from volumetric.program.layer.recipes import HIDDEN, LEAST, SHARPNESS, hiding_regions, recipe_of


def hidden_in(facts: Facts, streams: int, length: int, training: Training) -> dict[int, Array]:
    """Return which positions are hidden in which row: region → bool ``[streams, T, N]``, by the key of the pass."""
    found: dict[int, Array] = {}
    for place in hiding_regions(facts):
        shape = (streams, length, len(place.positions))
        first = training.first * length * len(place.positions)
        stay = dropout_mask(shape, HIDDEN, training.noise, stream_of(f"{training.path}/{place.name}"), first)
        found[place.index] = np.logical_not(stay)
    return found


def masked(facts: Facts, p: Arrays, canvas: Array, hidden: Mapping[int, Array]) -> Array:
    """Put the learned vector of a region where its positions are hidden, bool ``[B, N]``, before a step."""
    canvas = canvas.copy()
    for number, where in hidden.items():
        at = facts.places[number].positions
        vector = own(p, facts.places[number])["mask"].astype(canvas.dtype)
        canvas[:, at] = np.where(where[..., None], vector, canvas[:, at])
    return canvas


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Seen:
    """What a step was.

    Attributes
    ----------
    whole : the canvas before it, with nothing hidden and without the noise of training
    before : the canvas that edges read
    brought : the canvas behind the dispatch
    after : the canvas behind it
    written : bool ``[B, positions]``
    errors : of regions, ``[B, N, d]``
    fires : bool ``[B, regions]``
    hidden : region → which positions were, bool ``[B, N]``
    """

    whole: Array
    before: Array
    brought: Array
    after: Array
    written: Array
    errors: Mapping[int, Array]
    fires: Array
    hidden: Mapping[int, Array]


def penalty(facts: Facts, p: Arrays, step: Seen, held: Mapping[str, Array], states: dict[str, Array]) -> Array:
    """Return what all losses of a step come to, ``[B]``, and keep what the next one needs.

    With means over positions and features, of regions that fire:

    - ``next_step``: ``|P(x_t) - x_{t+1}|²``, P a norm and two layers with gelu between, x the region before a step;
    - ``masked_prediction``: ``|x' - x|²`` where positions were hidden, x being what was there;
    - ``predictive_consistency``: ``|x̂ - x'|²``, x̂ the prediction of a filter;
    - ``calibration``: ``(e²/v + log v) / 2`` where something was written, ``v = softplus(W x̂) + 1e-4``; of a residual
      region x̂ is what it held;
    - ``sparsity``: ``|e|``;
    - ``retrieval_accuracy``: rows that were written, ``W_v z_j``, should be what their address reads afterwards: the
      cross entropy of cosines over 0.1, among all rows written in the step and those that the memory held before;
    - ``write_utility``: the gates g of what was written.

    What is aimed at (``x_{t+1}``, ``x``, and the ``x'`` of a filter) gets no gradient.

    Parameters
    ----------
    held : states of the program before the step (those of memories count)
    states : behind it; those of `recipe_states` are replaced
    """
    total = np.zeros(len(step.before), step.before.dtype)
    for place in facts.places:
        losses = recipe_of(place)
        if not losses:
            continue
        fires, mine = step.fires[:, place.index], own(p, place)
        for name, weight in losses.items():
            with np.errstate(invalid="ignore"):  # of streams whose region does not fire
                if name == "next_step":
                    of = _next_step(mine, place, step, held, states)
                elif name in ("retrieval_accuracy", "write_utility"):
                    of = _memory(name, mine, place, step, held, states)
                else:
                    of = _by_rows(name, mine, place, step)
            total = total + np.where(fires, total.dtype.type(weight) * of, 0)
    return total


def _by_rows(name: str, p: Arrays, place: Place, step: Seen) -> Array:
    at = place.positions
    if name == "masked_prediction":
        where = step.hidden.get(place.index)
        if where is None:
            return np.zeros(len(step.before), step.before.dtype)
        far = np.square(step.after[:, at] - step.whole[:, at]).mean(2)
        return (far * where).sum(1) / np.maximum(where.sum(1), 1)
    x, error = step.before[:, at], step.errors[place.index]
    expected = predicted(p, x) if place.carrier == "filter" else x
    if name == "predictive_consistency":
        return np.square(expected - step.after[:, at]).mean((1, 2))
    if name == "sparsity":
        return np.abs(error).mean((1, 2))
    spread = softplus(affine(p, "calibration.", expected)) + x.dtype.type(LEAST)
    each = (np.square(error) / spread + np.log(spread)) / 2
    return np.where(step.written[:, at][..., None], each, 0).mean((1, 2))


def _next_step(p: Arrays, place: Place, step: Seen, held: Mapping[str, Array], states: dict[str, Array]) -> Array:
    seen, begun = f"{place.name}.seen", f"{place.name}.begun"
    x = step.whole[:, place.positions]
    made = affine(p, "next.up.", layer_norm(p, "next.norm.", held[seen]))
    far = np.square(affine(p, "next.down.", activate("gelu", made)) - x).mean((1, 2))
    fires = step.fires[:, place.index]
    states[seen] = np.where(fires[:, None, None], x, held[seen])
    states[begun] = np.where(fires[:, None], 1, held[begun]).astype(held[begun].dtype)
    return far * held[begun][:, 0]


def _memory(
    name: str, p: Arrays, place: Place, step: Seen, held: Mapping[str, Array], states: Mapping[str, Array]
) -> Array:
    z, there = step.brought[:, place.positions], step.written[:, place.positions]
    z = np.where(there[..., None], z, z.dtype.type(0))
    count = np.maximum(there.sum(1), 1)
    if name == "write_utility":
        gate = sigmoid(affine(p, "memory.write.", z))[..., 0]
        return (gate * there).sum(1) / count
    keys, values = p["memory.keys"] + states[f"{place.name}.keys"], states[f"{place.name}.values"]
    root = z.dtype.type(z.shape[-1] ** -0.5)
    read = softmax(affine(p, "memory.q.", z) @ keys.swapaxes(1, 2) * root) @ values
    wrote = affine(p, "memory.v.", z)
    among = np.concatenate([wrote, held[f"{place.name}.values"]], axis=1)
    logits = direction(read) @ direction(among).swapaxes(1, 2) / z.dtype.type(SHARPNESS)
    seen = np.concatenate([there, np.ones(held[f"{place.name}.values"].shape[:2], np.bool_)], axis=1)
    logits = np.where(seen[:, None], logits, logits.dtype.type(-1e9))
    top = logits.max(2, keepdims=True)
    total = np.log(np.exp(logits - top).sum(2)) + top[..., 0]
    right = np.diagonal(logits, axis1=1, axis2=2)  # row j is candidate j
    return np.where(there, total - right, 0).sum(1) / count
