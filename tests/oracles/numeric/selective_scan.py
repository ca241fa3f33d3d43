"""In NumPy: the selective scan of state-space layers: a linear recurrence whose decay, input and output."""

from __future__ import annotations

import numpy as np

from tests.oracles.memory import Memory, start_of
from volumetric.base._typing import Array
from volumetric.graph.operations.linear_scan import run_linear_scan_back
from volumetric.graph.operations.state_space import SelectiveScanInputs, SelectiveScanResult, _by_head
from volumetric.layers.selective_scan import STATE


def selective_scan_vjp(of: SelectiveScanResult, given: SelectiveScanInputs, gy: Array) -> SelectiveScanInputs:
    """Return the gradients of ``sum(gy * y)``; the state that the scan starts from is a constant."""
    x, dt, a, b, c = given
    heads, groups = x.shape[2], b.shape[2]
    g_states = run_linear_scan_back(_by_head(c, heads) * gy[:, :, None], of.decay, of.keep)
    g_c = np.sum(of.states[:, 1:] * gy[:, :, None], axis=4)
    before = of.states[:, :-1]
    if of.keep is not None:
        before = np.where(of.keep[..., None, None, None] == 0, 0, before)
    g_decay = np.sum(g_states * before, axis=4, keepdims=True)
    if a.shape[1] == 1:
        g_decay = g_decay.sum(2, keepdims=True)
    g_rate = (g_decay * of.decay)[..., 0]  # of dt · a
    g_b = np.sum(g_states * (dt[..., None] * x)[:, :, None], axis=4)
    g_taken = np.sum(g_states * _by_head(b, heads), axis=2)
    g_dt = np.sum(g_taken * x, axis=3) + np.sum(g_rate * a.T, axis=2)
    g_a = np.sum(g_rate * dt[:, :, None], axis=(0, 1)).T
    return SelectiveScanInputs(g_taken * dt[..., None], g_dt, g_a, _by_group(g_b, groups), _by_group(g_c, groups))


def scan_start(memory: Memory | None, shape: tuple[int, ...], x: Array) -> Array:
    """State before a call on the rows x, ``shape``; zeros where nothing is held."""
    size, heads, width = shape[1:]
    return start_of(memory, STATE, (*x.shape[:-2], size, heads * width), x.dtype).reshape(shape)


def keep_last(memory: Memory | None, states: Array, x: Array) -> None:
    """Leave the state after the last of the rows x in a memory."""
    if memory is not None:
        memory.write(STATE, states[:, -1].reshape(*x.shape[:-2], states.shape[2], -1).copy())


def _by_group(g: Array, groups: int) -> Array:
    """Sums of gradients ``[B, T, size, heads]`` over the heads of a group, ``[B, T, groups, size]``."""
    batch, length, size, heads = g.shape
    return g.reshape(batch, length, size, groups, heads // groups).sum(4).swapaxes(2, 3)
