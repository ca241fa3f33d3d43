"""sLSTM: an LSTM with exponential gates, a normaliser and heads (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError
from volumetric.graph.numeric.activations import activate, slope
from volumetric.graph.numeric.causal_conv import causal_conv, causal_conv_vjp, conv_state
from volumetric.graph.numeric.slstm_cell import CELL
from volumetric.graph.state import StateSpec, covering, is_sequence, start_of
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
    rows,
)
from volumetric.layers.causal_conv import conv_params
from volumetric.layers.head_norm import head_norm, head_norm_params, head_norm_vjp, warn_of_narrow_heads
from volumetric.layers.projections import (
    Maps,
    Projection,
    axon_map,
    check_projection,
    map_params,
    map_states,
    run_map,
    run_map_back,
)
from volumetric.layers.scope import Scope

GATES = ("i", "f", "z", "o")


@layer("slstm")
class SLSTM(LayerSpec):
    """``y = σ(õ) c / n``, head by head normalised, with ``c = f c + i tanh(z̃)`` and ``n = f n + i``, on ``[…, T, E]``.

    Gates are ``g̃ = W_g x + R_g y[t - 1] + b_g``, within each head alone; those of i and f read ``silu(conv(x))`` in the
    place of x. Gates i and f are exponential and divided by the largest so far, whose logarithm is the state m:

    ``m = max(ĩ, m[t - 1] + log σ(f̃))``, ``i = exp(ĩ - m)``, ``f = exp(m[t - 1] + log σ(f̃) - m)``

    and ``m = ĩ`` where n is 0, at the beginning (Beck et al. 2024). 1e-6 is added to n in the quotient. What the
    recurrence reads is y before its norm, which has a gain and no bias. A call goes on from the states y, c, n and m
    and the last rows that the convolution saw, and forgets them where the memory's resets say so; in the VJP they are
    constants.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    kernel_size : rows that the convolution sees; 0: there is none
    projection : ``"axon"``: gates i and f, and z and o, are made by one `AxonLinear` each of all channels in the place
        of the matrices W within heads
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int
    num_heads: int = 4
    kernel_size: int = 4
    projection: Projection = "dense"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_heads(self, self.embed_dim, self.num_heads)
        check_projection(self, self.projection)

    @property
    def maps(self) -> Maps:
        """What makes gates that remember, two at a time."""
        if self.projection == "dense":
            return {}
        return {name: axon_map(self.embed_dim, 2 * self.embed_dim) for name in ("if", "zo")}

    @property
    def by_head(self) -> tuple[int, int]:
        """Heads, and the width of one."""
        return self.num_heads, self.embed_dim // self.num_heads

    def params(self) -> tuple[ParamSpec, ...]:
        heads, width = self.by_head
        dense = (ParamSpec(name=f"{g}.weight", shape=(heads, width, width), init="small_normal") for g in GATES)
        weights = map_params(self.maps) if self.maps else dense
        conv = conv_params("conv.", self.embed_dim, self.kernel_size, bias=True) if self.kernel_size else ()
        return (
            *conv,
            *weights,
            ParamSpec(name="r.weight", shape=(4, heads, width, width), init="zeros"),
            ParamSpec(name="bias", shape=(4, heads, width), init="forget_block", packable=False),
            *head_norm_params(self.embed_dim),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        conv = (conv_state(self.embed_dim, self.kernel_size),) if self.kernel_size > 1 else ()
        own = (StateSpec(name=name, shape=(self.embed_dim,), kind="fixed") for name in CELL.states)
        return *conv, *own, *map_states(self.maps, *inputs)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

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

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.slstm import emit_slstm  # which imports this module

        return emit_slstm(scope, self, x)


def check_heads(spec: LayerSpec, width: int, heads: int) -> None:
    """Raise `SpecError` unless the heads of a cell divide its width and its convolution has 0 or more rows."""
    expect_positive(spec, "embed_dim", "num_heads")
    if width % heads:
        raise SpecError(f"{spec.kind}: {heads} heads do not divide a width of {width}")
    if width == heads:
        warn_of_narrow_heads(spec.kind, heads)
    size = getattr(spec, "kernel_size", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise SpecError(f"{spec.kind}: kernel_size must be a whole number from 0 on, got {size!r}")
