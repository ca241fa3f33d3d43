"""mLSTM: a matrix memory with exponential gates (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from volumetric.base._typing import Shape
from volumetric.formula.cells import EPS
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv, conv_params, conv_state
from volumetric.layers.emit_scope import Scope, linear, start_state
from volumetric.layers.head_norm import head_norm_params
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    Init,
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
from volumetric.layers.slstm import check_heads, head_norm

MOST = 80.0
"""Upper bound of -m in the divisor, so that its exponential fits float32."""


_FRESH: dict[str, Init] = {"i/weight": "zeros", "i/bias": "normal_tenth", "f/weight": "zeros", "f/bias": "forget"}
"""Initial values of `AxonLinear` gates: those of the affine gates."""


@layer("mlstm")
class MLSTM(LayerSpec):
    """A recurrent matrix memory: each row writes its value at its key and reads at its query, on ``[…, T, E]``.

    ::

        q = k = silu(conv(x))        v = x                               by heads of d channels
        ĩ, f̃ = W [q; k; v] + b                                           one number each a head
        λ = log σ(f̃) + m_{t−1}       m = max(λ, ĩ)       f = exp(λ − m)       i = exp(ĩ − m)
        C = f C_{t−1} + i k vᵀ / √d                      n = f n_{t−1} + i k / √d
        y = Cᵀq / (max(|qᵀn|, exp(−m)) + 10⁻⁶)
        out = (y − mean) / √(var + 10⁻⁵) ⊙ w                             mean and variance of each head

    Gates are exponential. Their sums are divided by exp(m), the largest gate so far. exp(−m) is limited to e⁸⁰; beyond
    that the value read rounds to zero in every type.

    Devices compute windows in chunks of `chunk_size` rows as products of matrices, with the same result up to rounding.
    Let B be the sum of log σ(f̃) since a row's sequence began. Within a chunk the score is
    ``exp(B_t − B_s + ĩ_s − m_t) (q_t · k_s) / √d`` if no sequence begins between s and t. Everything before the chunk
    is one matrix. Calls on rows that continue from a state run row by row. In float32, chunks of 64 rows have the error
    of single steps; longer ones have more.

    The state of a sequence is C ``[heads, d, d]``, n ``[heads, d]``, m ``[heads]``, and the last rows that the
    convolution saw. A reset sets them to zero. In gradients they are constants. Gates and states are float32 for all
    types of weights. Initialisation: W is 0, biases of the forget gates go from 3 to 6 over the heads, and those of the
    input gates have deviation 0.1.

    With ``projection="axon"`` the states, parameters and resets of the `AxonLinear` layers are part of the cell's,
    under ``i/``, ``f/``, ``qk/`` and ``v/``. Their gates are initialised as the others. Heads of one number
    (``num_heads = embed_dim``) are always 0 behind their norm; the layer warns of this.

    Beck et al. 2024 (arXiv 2405.04517).

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    kernel_size : rows that the convolution sees
    chunk_size : rows that devices compute at once; the same result up to rounding. Beyond 64, float32 loses digits
    projection : ``"axon"``: `AxonLinear` layers replace W. One each computes ĩ and f̃ from ``[q; k; v]``, one more,
        behind SiLU, ``q = k`` from the output of the convolution, and one v from x
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int = positional()
    num_heads: int = positional(default=4)
    kernel_size: int = 4
    chunk_size: int = 64
    projection: Projection = "dense"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_heads(self, self.embed_dim, self.num_heads)
        check_projection(self, self.projection)
        expect_positive(self, "kernel_size", "chunk_size")

    @property
    def by_head(self) -> tuple[int, int]:
        """Heads, and the width of one."""
        return self.num_heads, self.embed_dim // self.num_heads

    @property
    def maps(self) -> Maps:
        """The `AxonLinear` maps to queries and keys, values and gates."""
        if self.projection == "dense":
            return {}
        inner, gate = axon_map(self.embed_dim, self.embed_dim), axon_map(3 * self.embed_dim, self.num_heads)
        return {"qk": inner, "v": inner, "i": gate, "f": gate}

    def params(self) -> tuple[ParamSpec, ...]:
        heads, wide = self.num_heads, 3 * self.embed_dim
        conv, norm = (
            conv_params("conv.", self.embed_dim, self.kernel_size, bias=True),
            head_norm_params(self.embed_dim),
        )
        if self.maps:
            return *conv, *map_params(self.maps, _FRESH), *norm
        return (
            *conv,
            ParamSpec(name="i.weight", shape=(heads, wide), init="zeros"),
            ParamSpec(name="i.bias", shape=(heads,), init="normal_tenth", packable=False),
            ParamSpec(name="f.weight", shape=(heads, wide), init="zeros"),
            ParamSpec(name="f.bias", shape=(heads,), init="forget", packable=False),
            *norm,
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        heads, width = self.by_head
        conv = (conv_state(self.embed_dim, self.kernel_size),) if self.kernel_size > 1 else ()
        shapes = {"C": (heads, width, width), "n": (heads, width), "m": (heads,)}
        own = (StateSpec(name=name, shape=shape, kind="fixed") for name, shape in shapes.items())
        return *conv, *own, *map_states(self.maps, *inputs)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:

        work, maps = scope.work, self.maps
        p = {of.name: scope.param(of.name, of.shape) for of in self.params() if "/" not in of.name}
        heads, width = self.by_head
        q, value = causal_conv(scope, x, p["conv.weight"], p["conv.bias"], activation="silu"), x
        last = len(work.shape(x)) - 1
        if maps:
            q = work.unary(scope.child("qk").emit(maps["qk"], q), "silu")
            value = scope.child("v").emit(maps["v"], x)
        with work.at(scope.path, mixes=False):
            joined = work.concat((q, q, value), last)
        if maps:
            gates = work.concat([scope.child(name).emit(maps[name], joined) for name in ("i", "f")], last)
        else:
            with work.at(scope.path, mixes=False):
                gates = linear(work, p, ("i.", "f."), joined)
        gates = scope.as_sequences(gates)
        batch, length, _ = work.shape(gates)
        by_row = work.permute(work.reshape(gates, (batch, length, 2, heads)), (2, 0, 3, 1))
        i, f = (work.reshape(work.part(by_row, 0, at, at + 1), (batch, heads, length)) for at in range(2))
        q, v = (work.permute(work.reshape(of, (batch, length, heads, width)), (0, 2, 1, 3)) for of in (q, value))
        rows = _without_nonfinite(work, MlstmRows(q, work.affine(q, 1 / np.sqrt(width)), v, i, f, scope.keep_mask(x)))
        c, n, m = (start_state(scope, x, name, shape) for name, shape in _shapes(self).items())
        memory = work.concat((c, work.reshape(n, (batch, heads, width, 1))), 3)
        if length < 0:
            y, memory, m = _row_by_row(work, rows, memory, m)
        else:
            ys = []
            for first in range(0, length, self.chunk_size):
                part = _slice_rows(work, rows, first, min(first + self.chunk_size, length))
                outputs, memory, m = emit_chunk(work, part, memory, m)
                ys.append(outputs)
            y = work.concat(ys, 2) if ys else work.part(rows.v, 3, 0, width)
        if scope.keeps_state(x):
            scope.keep_state("C", work.part(memory, 3, 0, width))
            scope.keep_state("n", work.reshape(work.part(memory, 3, width, width + 1), (batch, heads, width)))
            scope.keep_state("m", m)
        return head_norm(work, work.permute(y, (0, 2, 1, 3)), p["norm.weight"], x)


class MlstmRows(NamedTuple):
    """Inputs of a chunk.

    Attributes
    ----------
    q, k : queries, and keys / √d, ``[B, heads, L, d]``
    v : values and 1, ``[B, heads, L, d + 1]``: the memory of the last column is the normaliser
    i, f : gates before their functions, ``[B, heads, L]``
    keep : ``[B, L]``, 0 for a reset row; None: no resets
    """

    q: int
    k: int
    v: int
    i: int
    f: int
    keep: int | None


def _shapes(spec: MLSTM) -> dict[str, tuple[int, ...]]:
    heads, width = spec.by_head
    return {"C": (heads, width, width), "n": (heads, width), "m": (heads,)}


def _without_nonfinite(work: GraphBuilder, of: MlstmRows) -> MlstmRows:
    """Replace non-finite keys and values by 0, and add NaN to the row's gate, which only rows that see it read.

    A matrix product would spread NaN from rows that are not seen, because 0 · NaN is NaN.
    """
    batch, heads, length, _ = work.shape(of.v)
    odd = work.reduce(work.affine(work.concat((of.k, of.v), 3), 0.0), "sum", (3,))  # 0, or NaN
    fine = work.binary("greater", work.scalar(0.5), odd)
    k, v = (work.binary("mul_nonzero", part, fine) for part in (of.k, of.v))
    one = work.broadcast(work.constant(np.ones((1, 1, 1, 1)), "one"), (batch, heads, length, 1))
    i = work.binary("add", of.i, work.reshape(odd, (batch, heads, length)))
    return of._replace(k=k, v=work.concat((v, one), 3), i=i)


def _slice_rows(work: GraphBuilder, of: MlstmRows, first: int, end: int) -> MlstmRows:
    """Return the rows from `first` to `end`."""
    q, k, v, i, f = (work.part(each, 2, first, end) for each in of[:5])
    return MlstmRows(q, k, v, i, f, None if of.keep is None else work.part(of.keep, 1, first, end))


def _row_by_row(work: GraphBuilder, of: MlstmRows, memory: int, m: int) -> tuple[int, int, int]:
    """Emit the cell for an open number of rows: one row after the other, without resets."""
    batch, heads, length, _ = work.shape(of.v)
    parts = of[:5]
    widths = [work.shape(each)[3] if len(work.shape(each)) == 4 else 0 for each in parts]
    xs = []
    for each, width in zip(parts, widths, strict=True):
        turned = work.permute(each, (2, 0, 1, 3) if width else (2, 0, 1))
        xs.append(work.reshape(turned, (length, batch, heads, 1, width) if width else (length, batch, heads, 1)))

    def body(inner: GraphBuilder, now: list[int], _: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        y, *after = emit_chunk(inner, MlstmRows(*now, keep=None), *states)
        return [y], after

    [y], [memory, m] = work.scan(body, xs, (), (memory, m))
    turned = work.permute(work.reshape(y, (length, batch, heads, work.shape(y)[4])), (1, 2, 0, 3))
    return turned, memory, m


def emit_chunk(work: GraphBuilder, of: MlstmRows, memory: int, m: int) -> tuple[int, int, int]:
    """Emit y ``[B, heads, L, d]`` of a chunk, and the states after it.

    Parameters
    ----------
    memory : C and n before the chunk, ``[B, heads, d, d + 1]``
    m : m before the chunk, ``[B, heads]``
    """
    batch, heads, length, wide = work.shape(of.v)
    width, groups = wide - 1, batch * heads

    def product(a: int, b: int, **how: bool) -> int:
        parts = (work.reshape(t, (groups, *work.shape(t)[2:])) for t in (a, b))
        products = work.gemm(*parts, **how)
        return work.reshape(products, (batch, heads, *work.shape(products)[1:]))

    log_f = work.unary(work.unary(work.unary(of.f, "neg"), "softplus"), "neg")
    since, begun, visible = _gate_sums(work, log_f, of.keep)
    first = work.reshape(m, (batch, heads, 1))
    first = first if begun is None else work.binary("mul_nonzero", first, begun)
    base = work.binary("add", since, first)
    from_row = work.reshape(work.binary("sub", of.i, since), (batch, heads, 1, length))
    gates = work.binary("add", work.reshape(since, (batch, heads, length, 1)), from_row)
    gates = gates if visible is None else work.binary("mask", gates, visible)
    top = work.reshape(work.reduce(gates, "max", (3,)), (batch, heads, length))
    most = work.binary("max", base, top)
    passed = work.unary(work.binary("sub", base, most), "exp")
    passed = passed if begun is None else work.binary("mul_nonzero", passed, begun)
    by_row = work.reshape(passed, (batch, heads, length, 1))
    weights = work.unary(work.binary("sub", gates, work.reshape(most, (batch, heads, length, 1))), "exp")
    met = work.binary("mul", weights, product(of.q, of.k, trans_b=True))
    old = work.binary("mul_nonzero", product(of.q, memory), by_row)
    read = work.binary("add", product(met, of.v), old)
    least = work.unary(work.binary("min", work.unary(most, "neg"), work.scalar(MOST)), "exp")
    along = work.unary(work.part(read, 3, width, wide), "abs")
    whole = work.affine(work.binary("max", along, work.reshape(least, (batch, heads, length, 1))), 1.0, EPS)
    y = work.binary("div", work.part(read, 3, 0, width), whole)
    last = work.reshape(work.part(weights, 2, length - 1, length), (batch, heads, length, 1))
    new = product(work.binary("mul", of.k, last), of.v, trans_a=True)
    left = work.binary("mul_nonzero", memory, work.part(by_row, 2, length - 1, length))
    m = work.reshape(work.part(most, 2, length - 1, length), (batch, heads))
    return y, work.binary("add", new, left), m


def _gate_sums(work: GraphBuilder, log_f: int, keep: int | None) -> tuple[int, int | None, int | None]:
    """Emit sums of log f since the start of the chunk or its last reset, ``[B, heads, L]``, and the masks.

    Returns
    -------
    The sums; 1 for rows that see the memory before the chunk, ``[B, 1, L]``, or None: all do; 1 if a row sees another,
    ``[B, 1, L, L]``, or None: there is one row.
    """
    batch, heads, length = work.shape(log_f)
    if length == 1 and keep is None:
        return log_f, None, None
    ones = work.constant(np.ones(heads), "ones")
    rows = work.permute(log_f, (0, 2, 1))
    since = work.permute(linear_scan(work, rows, ones, work.zeros((batch, heads)), keep), (0, 2, 1))
    earlier = work.constant(np.tril(np.ones((1, 1, length, length))), "earlier")
    if keep is None:
        return since, None, earlier
    resets = work.reshape(work.affine(keep, -1.0, 1.0), (batch, length, 1))
    count = linear_scan(work, resets, work.constant(np.ones(1), "ones"), work.zeros((batch, 1)))
    half = work.scalar(0.5)
    here, there = (work.reshape(count, (batch, 1, *shape)) for shape in ((length, 1), (1, length)))
    between = work.binary("greater", work.binary("sub", here, there), half)
    visible = work.binary("mul", work.affine(between, -1.0, 1.0), earlier)
    begun = work.affine(work.binary("greater", work.reshape(count, (batch, 1, length)), half), -1.0, 1.0)
    return since, begun, visible
