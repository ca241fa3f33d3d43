"""In NumPy: axon: pairs of numbers that turn and shrink, with traces for exact online gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering, start_of
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.graph.operations.rotate_scan import rotate_pairs, run_rotate_scan, run_rotate_scan_back
from volumetric.layers.axon import LEAST, TRACED, Axon


class Turn(NamedTuple):
    """What ν and ϑ stand for: ``r``, ``e^ν``, ``θ``, and R's numbers ``g``, ``φ`` with the factor ``γ`` on inputs."""

    r: Array
    rate: Array
    angle: Array
    g: Array
    phi: Array
    gamma: Array


def turn_of(nu: Array, theta: Array) -> Turn:
    """``r = e^(-e^ν)``, ``θ = e^ϑ``, ``g = r cos θ``, ``φ = r sin θ``, ``γ = √(1 - r²)``."""
    rate, angle = np.exp(nu), np.exp(theta)
    r = np.exp(-rate)
    gamma = np.sqrt(np.maximum(1 - r * r, r.dtype.type(LEAST)))
    return Turn(r, rate, angle, r * np.cos(angle), r * np.sin(angle), gamma)


@oracle_of(Axon)
class AxonOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        *lead, length, _ = x.shape
        n, (covered, keep) = self.hidden, covering(memory, x.shape)
        kept = None if keep is None else keep.reshape(-1, length)
        mixed = self._mixed(p, x).reshape(-1, length, n)
        of = turn_of(p["nu"], p["theta"])
        parts = [start_of(covered, name, (*lead, n), x.dtype) for name in ("c1", "c2")]
        start = np.concatenate(parts, axis=-1).reshape(-1, 2 * n)
        u = np.concatenate([of.gamma * p["w1"] * mixed, of.gamma * p["w2"] * mixed], axis=-1)
        s = run_rotate_scan(u, of.g, of.phi, start, kept)
        before = np.concatenate([start[:, None], s[:, :-1]], 1)[:, :length]
        if kept is not None:
            before = np.where(kept[..., None] != 0, before, before.dtype.type(0))
        saved: Saved = {"x": x, "mixed": mixed, "of": of, "before": before, "keep": kept, "traces": None}
        if covered is not None and self.traces:
            saved["traces"] = covered.read("traces", (*lead, 8, n), x.dtype).reshape(-1, 4, 2 * n)
            covered.write("traces", self._traced(p, saved).reshape(*lead, 8, n))
        if covered is not None and length:
            for name, end in zip(("c1", "c2"), np.split(s[:, -1], 2, axis=-1), strict=True):
                covered.write(name, end.reshape(*lead, n).copy())
        pairs = s.reshape(*lead, length, 2 * n)
        read = activate(self.activation, pairs)
        return affine(p, "out.", read), {**saved, "pairs": pairs, "read": read}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        of, mixed, keep, before = saved["of"], saved["mixed"], saved["keep"], saved["before"]
        g_pairs = affine_vjp(p, "out.", saved["read"], gy, params) * slope(self.activation, saved["pairs"])
        back = run_rotate_scan_back(g_pairs.reshape(before.shape), of.g, of.phi, keep)
        (c1, c2), (p1, p2) = np.split(before, 2, -1), np.split(back, 2, -1)
        g_g, g_phi = np.sum(p1 * c1 + p2 * c2, (0, 1)), np.sum(p2 * c1 - p1 * c2, (0, 1))
        g_gamma = np.sum((p1 * p["w1"] + p2 * p["w2"]) * mixed, (0, 1))
        params["w1"], params["w2"] = (of.gamma * np.sum(part * mixed, (0, 1)) for part in (p1, p2))
        params["nu"] = -of.rate * (g_g * of.g + g_phi * of.phi) + g_gamma * self._gamma_slope(of)
        params["theta"] = of.angle * (g_phi * of.g - g_g * of.phi)
        if saved["traces"] is not None and back.shape[1]:
            seam = rotate_pairs(back[:, 0], of.g, -of.phi)
            seam = seam if keep is None else np.where(keep[:, :1] != 0, seam, seam.dtype.type(0))
            for at, name in enumerate(TRACED):
                params[name] = params[name] + sum(np.split(np.sum(seam * saved["traces"][:, at], 0), 2))
        g_mixed = of.gamma * (p1 * p["w1"] + p2 * p["w2"])
        g_mixed = g_mixed.reshape(*saved["x"].shape[:-1], self.hidden)
        if self.mix == "linear":
            gx = affine_vjp(p, "input.", saved["x"], g_mixed, params)
        else:
            gx = g_mixed if self.mix == "none" else g_mixed @ self.transform().astype(g_mixed.dtype)
        return Grads((gx,), {name.name: params[name.name] for name in self.params()})

    def _mixed(self, p: Arrays, x: Array) -> Array:
        if self.mix == "linear":
            return affine(p, "input.", x)
        return x if self.mix == "none" else x @ self.transform().astype(x.dtype).T

    def _gamma_slope(self, of: Turn) -> Array:
        """Derivative of γ by ν."""
        return np.where(1 - of.r * of.r > LEAST, of.rate * of.r * of.r / of.gamma, 0).astype(of.r.dtype)

    def _traced(self, p: Arrays, saved: Saved) -> Array:
        """Derivatives of c after the last row by what is `TRACED`, ``[B, 4, 2 · hidden]``."""
        of, keep = saved["of"], saved["keep"]
        (c1, c2), mixed, none = np.split(saved["before"], 2, -1), saved["mixed"], np.zeros_like(saved["mixed"])
        g, phi, gamma = -of.rate * of.g, -of.rate * of.phi, self._gamma_slope(of)
        by_nu = (g * c1 - phi * c2 + gamma * p["w1"] * mixed, g * c2 + phi * c1 + gamma * p["w2"] * mixed)
        g, phi = -of.angle * of.phi, of.angle * of.g
        driven = of.gamma * mixed
        pairs = (by_nu, (g * c1 - phi * c2, g * c2 + phi * c1), (driven, none), (none, driven))
        found = [
            run_rotate_scan(np.concatenate(pair, -1), of.g, of.phi, saved["traces"][:, at], keep)[:, -1:]
            for at, pair in enumerate(pairs)
        ]
        return np.concatenate(found, 1) if mixed.shape[1] else saved["traces"]
