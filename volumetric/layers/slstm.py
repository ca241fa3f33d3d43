"""sLSTM: an LSTM with exponential gates, a normaliser and heads (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv, conv_params, conv_state
from volumetric.layers.emit_scope import Scope, as_rows, start_state
from volumetric.layers.head_norm import EPS as NORM_EPS
from volumetric.layers.head_norm import head_norm_params, warn_of_narrow_heads
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.projections import (
    Maps,
    Projection,
    axon_map,
    check_projection,
    map_params,
    map_states,
)

GATES = ("i", "f", "z", "o")
_CELL = CELLS["slstm"]


@layer("slstm")
class SLSTM(LayerSpec):
    """An LSTM with exponential input and forget gates, on rows ``[…, T, E]``.

    ::

        x̃ = silu(conv(x))                                               x itself without a convolution
        g̃ = W_g (x̃ or x) + R_g y_{t−1} + b_g                            i, f read x̃; z, o read x; each head alone
        λ = m_{t−1} + log σ(f̃)
        m = max(ĩ, λ)                                                   ĩ where n_{t−1} = 0
        i = exp(ĩ − m)        f = min(exp(λ − m), 1)
        c = f c_{t−1} + i tanh(z̃)        n = f n_{t−1} + i        y = σ(õ) c / (n + 10⁻⁶)
        out = (y − mean) / √(var + 10⁻⁵) ⊙ w                             mean and variance of each head

    The sums of the gates are divided by exp(m), the largest gate so far, so nothing overflows. n counts the additions,
    and y is a weighted mean. The recurrence reads y before its norm.

    The gates' matrices are ``[heads, out, in]`` with out = in = E / heads, R ``[4, heads, out, in]`` and b
    ``[4, heads, out]``, with the gates in the order i, f, z, o. Gates and states are computed in float32 for all types
    of weights. The state of a sequence is y, c, n and m ``[E]``, and the last rows that the convolution saw. A reset
    sets them to zero. In gradients they are constants.

    Initialisation: R is 0, matrices have deviation √(2 / (5 in)), and biases of the forget gate go from 3 to 6 within
    each head. States and parameters of ``projection="axon"`` are under ``if/`` and ``zo/``. Heads of one number
    (``num_heads = embed_dim``) are always 0 behind their norm; the layer warns of this.

    Beck et al. 2024 (arXiv 2405.04517).

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    kernel_size : rows that the convolution sees; 0: no convolution
    projection : ``"axon"``: one `AxonLinear` of all channels computes gates i and f, and one z and o, instead of the
        matrices W within heads
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int = positional()
    num_heads: int = positional(default=4)
    kernel_size: int = 4
    projection: Projection = "dense"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_heads(self, self.embed_dim, self.num_heads)
        check_projection(self, self.projection)

    @property
    def maps(self) -> Maps:
        """The `AxonLinear` maps to the gates, two gates each."""
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
        own = (StateSpec(name=name, shape=(self.embed_dim,), kind="fixed") for name in _CELL.states)
        return *conv, *own, *map_states(self.maps, *inputs)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:

        work, (heads, width) = scope.work, self.by_head
        p = {of.name: scope.param(of.name, of.shape) for of in self.params() if "/" not in of.name}
        mixed = causal_conv(scope, x, p["conv.weight"], p["conv.bias"], activation="silu") if self.kernel_size else x
        from_x = scope.as_sequences(
            _gates_of_maps(scope, self, mixed, x) if self.maps else _gates(scope, self, p, mixed, x)
        )
        batch, length, _ = work.shape(from_x)
        starts = [start_state(scope, x, name, (self.embed_dim,)) for name in _CELL.states]
        weight = work.reshape(p["r.weight"], (4 * self.embed_dim, width))
        y, *others = work.recurrent(_CELL.name, from_x, weight, starts, None, scope.keep_mask(x))
        if scope.keeps_state(x) and length:
            ends = (work.reshape(work.last(y, 1), (batch, self.embed_dim)), *others)
            for name, end in zip(_CELL.states, ends, strict=False):
                scope.keep_state(name, end)
        return head_norm(work, work.reshape(y, (batch, length, heads, width)), p["norm.weight"], x)


def check_heads(spec: LayerSpec, width: int, heads: int) -> None:
    """Raise `SpecError` unless the heads of a cell divide its width and its convolution has 0 or more rows."""
    expect_positive(spec, "embed_dim", "num_heads")
    if width % heads:
        raise SpecError(f"{spec.kind}: {heads} heads do not divide a width of {width}")
    if width == heads:
        warn_of_narrow_heads(spec.kind, heads)
    size = getattr(spec, "kernel_size", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise SpecError(f"{spec.kind}: kernel_size must be a whole number of at least 0, got {size!r}")


def _gates(scope: Scope, spec: SLSTM, p: dict[str, int], mixed: int, x: int) -> int:
    """Emit the inputs of the gates i, f, z, o, concatenated; i and f read `mixed`, z and o read `x`."""
    work, (heads, width), count = scope.work, spec.by_head, scope.work.shape(x)[:-1]
    rows = prod(count)
    # The groups of the product are the heads of gates i and f, then those of z and o.
    by_head = [work.permute(work.reshape(of, (rows, heads, width)), (1, 0, 2)) for of in (mixed, x)]
    weights = [work.concat([p["i.weight"], p["f.weight"]], 1), work.concat([p["z.weight"], p["o.weight"]], 1)]
    bias = work.permute(work.reshape(p["bias"], (2, 2, heads, width)), (0, 2, 1, 3))
    bias = work.reshape(bias, (2 * heads, 2 * width))
    gates = work.gemm(work.concat(by_head, 0), work.concat(weights, 0), bias, trans_b=True)
    gates = work.permute(work.reshape(gates, (2, heads, rows, 2, width)), (2, 0, 3, 1, 4))
    return work.reshape(gates, (*count, 4 * spec.embed_dim))


def _gates_of_maps(scope: Scope, spec: SLSTM, mixed: int, x: int) -> int:
    """Emit the inputs of the gates with `AxonLinear` maps."""
    work = scope.work
    gates = [scope.child(name).emit(of, read) for (name, of), read in zip(spec.maps.items(), (mixed, x), strict=True)]
    joined = work.concat(gates, len(work.shape(x)) - 1)
    bias = scope.param("bias", (4, *spec.by_head))
    return work.binary("add", joined, work.reshape(bias, (4 * spec.embed_dim,)))


def head_norm(work: GraphBuilder, y: int, gain: int, x: int) -> int:
    """Emit the norm of each head of ``[B, T, heads, width]`` as rows like `x`."""
    normal = work.norm(as_rows(work, y), kind="layer", eps=NORM_EPS)
    return work.binary("mul", work.reshape(normal, work.shape(x)), gain)
