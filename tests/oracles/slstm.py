"""In NumPy: sLSTM: an LSTM with exponential gates, a normaliser and heads (xLSTM, Beck et al. 2024, arXiv."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.head_norm import head_norm, head_norm_vjp
from tests.oracles.memory import Memory, covering, start_of
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from tests.oracles.projections import run_map, run_map_back
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.layers.slstm import GATES, SLSTM

CELL = CELLS["slstm"]


@oracle_of(SLSTM)
class SLSTMOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        covered, keep = covering(memory, x.shape)
        saved: Saved = {"x": x, "keep": keep}
        seen = x
        if self.kernel_size:
            kept = covered if self.kernel_size > 1 else None
            saved["conv"] = causal_conv(p["conv.weight"], p["conv.bias"], x, kept, keep)
            seen = activate("silu", saved["conv"].y)
        if self.maps:
            pairs = [run_map(self.maps, n, p, of, covered, saved) for n, of in zip(self.maps, (seen, x), strict=True)]
            from_x = np.concatenate(pairs, axis=-1) + p["bias"].reshape(-1)
        else:
            parts = {"i": seen, "f": seen, "z": x, "o": x}
            from_x = np.stack([self._product(p[f"{g}.weight"], parts[g]) for g in GATES], axis=-3) + p["bias"]
            from_x = from_x.reshape(*x.shape[:-1], 4 * self.embed_dim)
        shape = (*x.shape[:-2], self.embed_dim)
        start = tuple(start_of(covered, name, shape, x.dtype) for name in CELL.states)
        every, tape = CELL.run(from_x, self._recurrent(p["r.weight"]), None, start, keep)
        if covered is not None:
            for name, state in zip(CELL.states, every, strict=True):
                covered.write(name, state[..., -1, :].copy())
        y, normal = head_norm(every[0][..., 1:, :], p["norm.weight"], self.num_heads)
        return y, {**saved, "seen": seen, "every": every, "tape": tape, "normal": normal}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        heads, width = self.by_head
        x, keep, every = saved["x"], saved["keep"], saved["every"]
        g_y = head_norm_vjp(p["norm.weight"], saved["normal"], gy, params)
        g, _, _ = CELL.run_back(self._recurrent(p["r.weight"]), every, saved["tape"], g_y, keep=keep)
        before = every[0][..., :-1, :]
        if keep is not None:
            before = np.where(keep[..., None] != 0, before, before.dtype.type(0))
        by_gate, before = rows(g).reshape(-1, 4, heads, width), rows(before).reshape(-1, heads, width)
        params["r.weight"] = np.einsum("tgho,thi->ghoi", by_gate, before)
        params["bias"] = by_gate.sum(0)
        if self.maps:
            halves = zip(self.maps, np.split(g, 2, axis=-1), strict=True)
            g_seen, gx = (run_map_back(self.maps, name, p, saved, half, params) for name, half in halves)
        else:
            parts = {"i": saved["seen"], "f": saved["seen"], "z": x, "o": x}
            back: dict[str, Array] = {}
            for at, gate in enumerate(GATES):
                own = by_gate[:, at]
                params[f"{gate}.weight"] = np.einsum("tho,thi->hoi", own, rows(parts[gate]).reshape(own.shape))
                back[gate] = np.einsum("tho,hoi->thi", own, p[f"{gate}.weight"]).reshape(x.shape)
            gx, g_seen = back["z"] + back["o"], back["i"] + back["f"]
        if not self.kernel_size:
            return Grads((gx + g_seen,), params)
        conv = saved["conv"]
        g_conv = g_seen * slope("silu", conv.y)
        through, params["conv.weight"] = causal_conv_vjp(p["conv.weight"], conv.rows, g_conv, conv.seen)
        params["conv.bias"] = rows(g_conv).sum(0)
        return Grads((gx + through,), params)

    def _product(self, weight: Array, x: Array) -> Array:
        """``W x`` within each head, ``[…, heads, width]``."""
        return np.einsum("...hi,hoi->...ho", x.reshape(*x.shape[:-1], *self.by_head), weight)

    def _recurrent(self, weight: Array) -> Array:
        """The matrices of all gates and heads as a cell takes them, ``[4 · E, width]``."""
        return weight.reshape(4 * self.embed_dim, -1)
