"""In NumPy: recurrent layers with torch's equations and gate order: RNN, LSTM and GRU."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering, start_of
from volumetric.base._typing import Array
from volumetric.layers.recurrent import Recurrent


@oracle_of(Recurrent)
class RecurrentOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        covered, keep = covering(memory, x.shape)
        kept = None if self.reverse else covered
        shape = (*x.shape[:-2], self.hidden_size)
        start = tuple(start_of(kept, name, shape, x.dtype) for name in self.cell.states)
        from_x = affine(p, "ih.", self._turned(x))
        keep = self._keep(keep)
        every, tape = self.cell.run(from_x, p["hh.weight"], p.get("hh.bias"), start, keep)
        if kept is not None:
            for name, state in zip(self.cell.states, every, strict=True):
                kept.write(name, state[..., -1, :].copy())
        return self._turned(every[0][..., 1:, :]), {"x": self._turned(x), "every": every, "tape": tape, "keep": keep}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        every, keep = saved["every"], saved["keep"]
        g_x, g_h, _ = self.cell.run_back(p["hh.weight"], every, saved["tape"], self._turned(gy), keep=keep)
        params: dict[str, Array] = {}
        gx = affine_vjp(p, "ih.", saved["x"], g_x, params)
        before = every[0][..., :-1, :]
        if keep is not None:
            before = np.where(keep[..., None] != 0, before, before.dtype.type(0))
        params["hh.weight"] = rows(g_h).T @ rows(before)
        if self.bias:
            params["hh.bias"] = rows(g_h).sum(0)
        return Grads((self._turned(gx),), params)

    def _keep(self, keep: Array | None) -> Array | None:
        """Which steps find the states of the step computed before them: backwards, it is the row behind that resets."""
        if keep is None or not self.reverse:
            return keep
        return np.concatenate([np.ones_like(keep[..., :1]), keep[..., :0:-1]], axis=-1)

    def _turned(self, x: Array) -> Array:
        """Steps in the order in which they are computed, or such results in the order of the steps."""
        return x[..., ::-1, :] if self.reverse else x
