"""In NumPy: column: experts on one input, of which each row takes its own mixture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, below, oracle, oracle_of, rows
from tests.oracles.containers import inner_memory
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory
from tests.oracles.numeric.norms import rms_norm_vjp
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.graph.numeric.norms import rms_norm
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.scaffolds.column import Column


@oracle_of(Column)
class ColumnOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        def run(i: int, u: Array) -> tuple[Array, Saved]:
            return oracle(self.experts[i]).forward(below(p, str(i)), u, memory=inner_memory(memory, str(i), u))

        return self._run(p, xs[0], run)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        def run(i: int, u: Array) -> tuple[Array, Saved]:
            return oracle(self.experts[i]).train_forward(below(p, str(i)), u, training=training.child(str(i)))

        y, saved = self._run(p, xs[0], run)
        if self.balance and len(self.experts) > 1:
            a = saved["a"]
            mean, factor = a.mean(-2, keepdims=True), a.dtype.type(self.balance * len(self.experts))
            training.penalties[training.path] = np.square(mean).sum() * factor * a.shape[-2]
            saved["balance"] = 2 * factor * mean
        return y, saved

    def _run(self, p: Arrays, x: Array, run: Callable[[int, Array], tuple[Array, Saved]]) -> tuple[Array, Saved]:
        if len(self.experts) == 1:
            y, saved = run(0, x)
            return y, {"tape": [saved]}
        u, scale = rms_norm(x, p["norm.weight"], self.eps)
        made = [run(i, u) for i in range(len(self.experts))]
        changes = np.stack([y - u for y, _ in made], axis=-2)
        prior, routed = self._prior(p)
        a = softmax(prior + self._refined(p, u))
        asked = (u @ p["mix.q.weight"].T)[..., None, :] + p["mix.bias"]
        keys = changes @ p["mix.k.weight"].T
        scores = asked @ np.swapaxes(keys, -1, -2) * keys.dtype.type(self.keys**-0.5)
        if self.prune:
            scores = np.where(np.isneginf(prior), -np.inf, scores).astype(scores.dtype)
        looks = softmax(scores)
        share = np.einsum("...i,...ij->...j", a, looks)
        seen = np.einsum("...j,...jd->...d", share, changes)
        values = seen @ p["mix.v.weight"].T
        whole = np.einsum("...i,...id->...d", a, changes) + values @ p["mix.out.weight"].T + (u - x)
        up = affine(p, "head.up.", whole)
        head = affine(p, "head.down.", activate("gelu", up))
        y = x + p["alpha"] * whole + p["alpha_head"] * head
        kept = {"x": x, "u": u, "scale": scale, "changes": changes, "a": a, "asked": asked, "keys": keys}
        kept |= {"looks": looks, "share": share, "seen": seen, "values": values, "whole": whole, "up": up, "head": head}
        return y, {**kept, "routed": routed, "tape": [saved for _, saved in made]}

    def _prior(self, p: Arrays) -> tuple[Array, Saved]:
        """Scores of the experts, ``[E]``, -inf for those without a weight; and what the VJP needs."""
        context = p["prior.q.weight"] @ p["prior.context"]
        keys = p["prior.keys"] @ p["prior.k.weight"].T
        scores, saved = keys @ context * context.dtype.type(self.prior_factor), {"context": context, "keys": keys}
        kept = scores if self.chosen_count is None else keep_largest(scores, self.chosen_count)
        return kept / kept.dtype.type(self.temperature), saved

    def _refined(self, p: Arrays, u: Array) -> Array:
        """Scores of the refiner with its weight, ``[…, E]``. To centre them changes no softmax."""
        if not self.refine:
            return np.zeros((*u.shape[:-1], len(self.experts)), u.dtype)
        return (u @ p["refine.q.weight"].T) @ p["refine.keys"].T * u.dtype.type(self.refine_factor)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        if len(self.experts) == 1:
            return Grads((self._expert_vjp(p, 0, saved, gy, params),), params)
        x, u, whole, changes = (saved[name] for name in ("x", "u", "whole", "changes"))
        params["alpha"] = (gy * whole).sum().reshape(1)
        params["alpha_head"] = (gy * saved["head"]).sum().reshape(1)
        g = affine_vjp(p, "head.down.", activate("gelu", saved["up"]), p["alpha_head"] * gy, params)
        g = affine_vjp(p, "head.up.", whole, g * slope("gelu", saved["up"]), params) + p["alpha"] * gy
        gx, gu = gy - g, g
        g_values = affine_vjp(p, "mix.out.", saved["values"], g, params)
        g_seen = affine_vjp(p, "mix.v.", saved["seen"], g_values, params)
        a, share, looks = saved["a"], saved["share"], saved["looks"]
        g_changes = a[..., None] * g[..., None, :] + share[..., None] * g_seen[..., None, :]
        g_share = np.einsum("...d,...jd->...j", g_seen, changes)
        g_a = np.einsum("...d,...id->...i", g, changes) + np.einsum("...j,...ij->...i", g_share, looks)
        g_a = g_a + saved["balance"] if "balance" in saved else g_a
        g_scores = softmax_vjp(looks, a[..., None] * g_share[..., None, :]) * x.dtype.type(self.keys**-0.5)
        g_asked = g_scores @ saved["keys"]
        count = len(self.experts)
        params["mix.bias"] = g_asked.reshape(-1, count, self.keys).sum(0)
        gu = gu + affine_vjp(p, "mix.q.", u, g_asked.sum(-2), params)
        g_keys = np.swapaxes(g_scores, -1, -2) @ saved["asked"]
        g_changes = g_changes + affine_vjp(p, "mix.k.", changes, g_keys, params)
        gu = gu + self._routing_vjp(p, saved, softmax_vjp(a, g_a), params)
        for i in range(count):
            own = np.ascontiguousarray(g_changes[..., i, :])
            gu = gu + self._expert_vjp(p, i, saved, own, params) - own
        through, params["norm.weight"] = rms_norm_vjp(x, p["norm.weight"], saved["scale"], gu)
        return Grads((gx + through,), params)

    def _routing_vjp(self, p: Arrays, saved: Saved, g: Array, out: dict[str, Array]) -> Array:
        """Back from the scores of prior and refiner together; returns the gradient of u."""
        context, keys, u = saved["routed"]["context"], saved["routed"]["keys"], saved["u"]
        g_prior = rows(g).sum(0) * g.dtype.type(self.prior_factor / self.temperature)
        g_keys, g_context = np.outer(g_prior, context), keys.T @ g_prior
        out["prior.keys"], out["prior.k.weight"] = g_keys @ p["prior.k.weight"], g_keys.T @ p["prior.keys"]
        out["prior.q.weight"] = np.outer(g_context, p["prior.context"])
        out["prior.context"] = p["prior.q.weight"].T @ g_context
        if not self.refine:
            return np.zeros_like(u)
        g = g * g.dtype.type(self.refine_factor)
        out["refine.keys"] = rows(g).T @ rows(u @ p["refine.q.weight"].T)
        return affine_vjp(p, "refine.q.", u, g @ p["refine.keys"], out)

    def _expert_vjp(self, p: Arrays, i: int, saved: Saved, g: Array, out: dict[str, Array]) -> Array:
        result = oracle(self.experts[i]).vjp(below(p, str(i)), saved["tape"][i], g)
        out |= {f"{i}/{name}": value for name, value in result.params.items()}
        assert result.inputs[0] is not None, "experts read features"
        return result.inputs[0]
