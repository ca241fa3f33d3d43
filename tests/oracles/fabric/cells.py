"""In NumPy: what the cells of a fabric compute, all nodes of a population at once; and their parameters and."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from tests.oracles.axon import turn_of
from tests.oracles.fabric.tape import Tape, Var
from tests.oracles.head_norm import head_norm, head_norm_vjp
from volumetric.base._typing import Array
from volumetric.fabric.layer.cell_populations import SLSTM, Axon, Cell
from volumetric.fabric.layer.cell_steps import step_of
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.axon import LEAST
from volumetric.layers.recurrent import Cell as Step

Vars: TypeAlias = dict[str, Var]


def advance(tape: Tape, cell: Cell, p: Mapping[str, Var], x: Var, shown: Var, kept: Vars) -> tuple[Var, Vars]:
    """Return what nodes show after a step, and what they keep.

    Parameters
    ----------
    p : weights of each node, or of all, by name
    x : what comes in, ``[n, B, H]``
    shown : what they showed before
    kept : what they kept
    """
    if isinstance(cell, Axon):
        return _axon(tape, p, x, kept)
    step = step_of(cell)
    assert step is not None
    before = [kept[name] for name in step.states] if isinstance(cell, SLSTM) else [shown, *kept.values()]
    if isinstance(cell, SLSTM):
        n = p["bias"].shape[0]
        from_x = tape.add(tape.product(x, p["ih.weight"]), tape.reshape(p["bias"], (n, 1, 4 * cell.hidden)))
        from_h = tape.product(before[0], _between_heads(tape, p["r.weight"]))
    else:
        from_x, from_h = (
            tape.add(tape.product(of, p[f"{name}.weight"]), _row(tape, p[f"{name}.bias"]))
            for of, name in ((x, "ih"), (before[0], "hh"))
        )
    after = _stepped(tape, step, from_x, from_h, before)
    if isinstance(cell, SLSTM):
        return _normal(tape, cell, after[0], p["norm.weight"]), dict(zip(step.states, after, strict=True))
    return after[0], dict(zip(kept, after[1:], strict=True))


def _row(tape: Tape, x: Var) -> Var:
    return tape.reshape(x, (x.shape[0], 1, x.shape[1]))


def _between_heads(tape: Tape, weight: Var) -> Var:
    """The whole matrices ``[n, 4 H, H]``, which have 0 between heads."""
    n, gates, heads, width, _ = weight.shape
    whole = np.zeros((n, gates, heads, width, heads, width), weight.value.dtype)
    for head in range(heads):
        whole[:, :, head, :, head] = weight.value[:, :, head]

    def back(g: Array) -> tuple[Array]:
        apart = g.reshape(whole.shape)
        return (np.stack([apart[:, :, head, :, head] for head in range(heads)], 2),)

    return tape.record((weight,), (whole.reshape(n, gates * heads * width, heads * width),), back)[0]


def _stepped(tape: Tape, step: Step, from_x: Var, from_h: Var, before: list[Var]) -> list[Var]:
    states = tuple(of.value for of in before)
    after, kept = step.step(from_x.value, from_h.value, states)

    def back(*grads: Array) -> tuple[Array | None, ...]:
        g_x, g_h, direct = step.back(kept, states, after, grads)
        ways: dict[str, Array] = dict(zip(step.direct, direct, strict=True))
        return g_x, g_h, *(ways.get(name) for name in step.states)

    return tape.record((from_x, from_h, *before), after, back)


def _normal(tape: Tape, cell: SLSTM, y: Var, gain: Var) -> Var:
    value, kept = head_norm(y.value, gain.value[:, None], cell.heads)

    def back(g: Array) -> tuple[Array, Array]:
        g_y = head_norm_vjp(gain.value[:, None], kept, g, {})
        by_node = (g * kept[0].reshape(g.shape)).sum(1)
        return g_y, by_node if len(gain.value) == len(by_node) else by_node.sum(0, keepdims=True)

    return tape.record((y, gain), (value,), back)[0]


def _axon(tape: Tape, p: Mapping[str, Var], x: Var, kept: Vars) -> tuple[Var, Vars]:
    mixed = tape.product(x, p["input.weight"])
    g, phi, gamma = (_row(tape, of) for of in _turn(tape, p["nu"], p["theta"]))
    driven = tape.mul(mixed, gamma)
    minus = tape.apply(phi, np.negative, lambda x: np.full_like(x, -1))
    c1, c2 = kept["c1"], kept["c2"]
    after = [
        tape.add(tape.add(tape.mul(a, g), tape.mul(b, turn)), tape.mul(driven, _row(tape, p[w])))
        for a, b, turn, w in ((c1, c2, minus, "w1"), (c2, c1, phi, "w2"))
    ]
    read = tape.apply(tape.join(after, 2), lambda c: activate("silu", c), lambda c: slope("silu", c))
    return tape.add(tape.product(read, p["out.weight"]), _row(tape, p["out.bias"])), {"c1": after[0], "c2": after[1]}


def _turn(tape: Tape, nu: Var, theta: Var) -> list[Var]:
    """``g``, ``φ`` and ``γ`` of `layers.axon`."""
    of = turn_of(nu.value, theta.value)
    steep = np.where(1 - of.r * of.r > LEAST, of.rate * of.r * of.r / of.gamma, 0).astype(of.r.dtype)

    def back(g_g: Array, g_phi: Array, g_gamma: Array) -> tuple[Array, Array]:
        g_nu = -of.rate * (g_g * of.g + g_phi * of.phi) + g_gamma * steep
        return g_nu, of.angle * (g_phi * of.g - g_g * of.phi)

    return tape.record((nu, theta), (of.g, of.phi, of.gamma), back)
