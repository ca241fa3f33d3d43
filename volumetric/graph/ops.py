"""The graph: tensors with roles, nodes over them, and the table of the operations that devices implement.

Every network and every step of training runs as a graph: a flat list of nodes in execution order over row-major
tensors. Each tensor is written once. The exception are tensors with a `key`: they are views of a named buffer that
outlives the run (a parameter, an optimiser's slot, a state of a sequence), and nodes write into it in place.

A first axis may be open: a size of ``-n`` stands for n times the rows of a call (`ROWS` is -1), so that sizes multiply
and divide as numbers do. `binding.bind` gives such a graph a number of rows. The rows that a state holds are `HELD`.

Operations
==========

float32 unless said. ``in → out``, then the attributes. A node has all attributes of its operation. Axes are counted
from 0. ``NumPy`` below means that the NumPy function of that name defines the result, NaN included. Sizes may be 0.
Only the first output of a node has a gradient: the others (statistics, what a cell keeps, counts) serve gradients.
The exception is ``scan``.

Operations on the rows of a call
--------------------------------
What fast devices run on packed weights and on the states of sequences, whatever the number of rows. They name what
they take: ``roles`` has a name for each input. A device that does not run one gets the operations further below in its
place (`dialect`); so does training. x, y: [ROWS, width].

``embedding``   ids [ROWS], weight [V,D] → y. ``scale``: factor on the row of ``weight`` that an id names.
``position_embedding`` x, positions int32 [ROWS], weight [P,D] → x + weight[positions + ``offset``].
``linear``      x [, residual], weight.i [Nᵢ,K] …, bias.i [Nᵢ] … [, norm.weight [K] [, norm.bias]] → y. With
                ``n = norm(x)`` (``norm`` None, rms, layer; ``norm_eps``, ``norm_unit_offset`` as in ``norm``):
                ``combine`` concat: ``act(n Wᵢᵀ + bᵢ)`` side by side; gated: ``act(n W₀ᵀ + b₀) · (n W₁ᵀ + b₁)``.
                ``limit`` and ``up_offset`` bound the factors of a gated one, as in `layers.SwiGLU`.
                Then ``+ residual``; then ``softcap · tanh(y / softcap)`` unless None. ``activation``; ``parts``: (Nᵢ).
``attend``      qkv [ROWS, (heads + 2 kv_heads) · head_dim], positions [, q_norm [head_dim], k_norm] [, sinks [heads]]
                [, k, v: states [HELD, kv_heads, head_dim]] → y [ROWS, heads · head_dim] [, k, v with the new rows].
                Head norms (``qk_norm`` rms, layer, None; ``qk_norm_eps``, ``qk_norm_unit_offset``; with
                ``own_gains`` they are [heads · head_dim] and [kv_heads · head_dim]), ``rope``
                (`numeric.rope.Rope` or None), then attention as `layers.attention` has it: ``heads kv_heads head_dim
                scale causal window chunk softcap temperature_scale temperature_every``. Without states rows see those
                of their own call.
``recurrence``  x [ROWS, nH], weight.0 [nH,H] [, bias.0 [nH]], h: state [1,H] [, c for lstm] → y [ROWS,H], h [, c] as
                the last row leaves them. ``cell`` and equations as ``recurrent``; ``parts``: (nH,).
``mix``         weights [ROWS,n], n x → Σ weightᵢ · xᵢ, without those of weight 0, whatever they are. Where not
                ``weighted``, the sum of the xᵢ whose weight is not 0.
``experts``     x [, norm.weight …], choice [ROWS,n] [, residual], of each expert i of ``count``: i.weight.0 …,
                i.bias.0 …, i.down [D,N], i.down_bias [D] → y [ROWS,D]: Σ weightᵢ · (hᵢ downᵢᵀ + biasᵢ), i rising,
                without those of weight 0, then ``+ residual``. hᵢ is a ``linear`` with the attributes ``first``, gated
                or of one part; weights follow from choices by ``scoring`` and ``top_k``
                (`operations.experts.weights_of`). A pass makes it of a `mix` and what is before it.
``sum``         1 or more x → ``scale`` · (their sum, from left to right).
``scaled_softmax`` x → softmax(x / ``temperature``) by row.
``softcap``     x → ``cap · tanh(x / cap)``.
``columns``     x → its columns ``start`` … ``stop`` - 1.
``causal_conv`` x [ROWS,W], weight [C,1,taps] [, bias [C]], past: state [taps-1,C] → y [ROWS,C], past after the last
                row. ``y[t] = act(Σ_k f · weight[:,k] · row[t + k - taps + 1] + bias)`` over C columns of x from
                ``start`` on, before them those of past; ``activation``; ``factors``: runs of channels and their f,
                () for 1.
``selective_scan`` x, dt, b, c [, z], a_log [H,N] or [H], d [H] [, dt_bias [H]], state [N, H · P] → y [ROWS, H · P],
                state. `numeric.selective_scan` has the equations, with ``heads`` H, ``head_dim`` P, ``groups``,
                ``size`` N; ``starts``: the first column read of each. dt is ``softplus(dt_factor · dt + dt_bias)``
                within ``dt_min`` and ``dt_max`` (None: no bound), the rate ``-exp(a_log)``. d · x is added; where there
                is z the sum is multiplied by ``silu(z_factor · z)``.
``grouped_norm`` x [ROWS,W], gain [W] → the rms norm of each of ``groups`` parts of a row, with ``eps``.
``norm``, ``concat`` on rows of features also belong here.

Products
--------
``gemm``        a [Ga,M,K], b [Gb,K,N] [, bias [N] or [Gc,N]] → c [Gc,M,N]. ``trans_a``: a is [Ga,K,M]; ``trans_b``: b
                is [Gb,N,K]. Groups go round: with G = max(Ga, Gb, Gc), which Ga, Gb and Gc divide,
                ``c[j] = act(Σ_{g ≡ j mod Gc} op(a[g mod Ga]) op(b[g mod Gb]) + bias)``, g rising. ``groups`` = Gc.
                So Gb = 1 is a shared right side, Ga = 1 a shared left side, Gc = 1 the sum over all groups; the
                gradient of a gemm is a gemm. ``activation``: name, ``"linear"`` unless a pass fused one. K = 0, Ga = 0
                or Gb = 0 gives act(bias), with any Gc. Operands have 3 axes, always.

Element-wise (any number of axes)
---------------------------------
``unary``       x → y. ``name``: linear relu silu gelu gelu_tanh tanh sigmoid leaky_relu relu2 quick_gelu
                (`numeric.activations`), exp log neg square sqrt rsqrt reciprocal abs sign softplus floor sin cos,
                affine. ``alpha``, ``beta``: affine is ``alpha · x + beta``; for the others they are 1 and 0.
``unary_grad``  g, x → g · f'(x). ``name``: an activation other than linear. At a kink the derivative from the left
                (relu: 0 at 0; leaky_relu: 0.01 at 0). ``from_tanh``, ``from_sigmoid``: x is the result of f instead.
``binary``      a, b → c, NumPy broadcasting. ``name``: add sub mul div; max min (NumPy: NaN wins); greater: 1 where
                a > b, else 0 (NaN: 0); mul_nonzero: a · b, but 0 where b is 0, even if a is NaN; mask: a where b is not
                0, else -inf (b holds 0 and 1 only, and has no gradient). At most 4 axes remain once neighbours
                that broadcast alike are one (`layout.broadcast_layout`).

Moving data
-----------
``delay``       x [n, …], past [d, …] → of ``past`` and x one behind the other the first n, and the last d: what x was d
                rows earlier, and what is past after it. For axes whose size is open.
``last``        x → the last element of ``axis``, which stays with size 1. For axes whose size is open.
``reshape``     x → the same elements in another shape; no work: both share storage. Also int32.
``permute``     x → ``NumPy transpose(x, perm)``. ``perm``.
``flip``        x → ``NumPy flip(x, axis)``.
``slice``       x → ``x[starts[0]:stops[0], …]``. ``starts``, ``stops``: one for each axis. Also int32.
``pad``         x → x with ``before[i]`` zeros in front of axis i and ``after[i]`` behind.
``concat``      1 or more x → joined along ``axis``.
``broadcast``   x → x repeated to ``shape``; x has as many axes, each of the size wanted or 1.
``reduce``      x → ``name`` (sum max mean) over ``axes`` (rising, 1 or more), which stay with size 1. max: NumPy; an
                empty sum is 0; max and mean of nothing are refused when the graph is built.
``assign``      value [, apply [1]] → the buffer ``key`` (shape of value), written in place; where ``apply`` is 0 it
                stays as it is.

Rows
----
``gather_rows``   table [V,D], ids int32 [n] → [n,D]. Ids are checked on the host before a run.
``scatter_rows``  g [n,D], ids int32 [n] → [``rows``,D]: each row the sum of the g of its id, added in the order of ids.
``softmax``       x [R,W] → y, by row; all -inf: zeros; NaN or +inf in a row: the whole row NaN.
``softmax_grad``  y, g → ``y (g − Σ y g)``.
``entmax``        x [R,W] → y. ``alpha`` in (1, 2]: `numeric.entmax`; 2 is sparsemax, exactly. -inf, NaN: as softmax.
``entmax_grad``   y, g → ``s (g − Σ s g / Σ s)``, ``s = y^(2−alpha)`` where y > 0, NaN where y is, else 0; Σ s = 0
                  counts as 1. ``alpha``.
``keep_largest``  x [R,W] → x where it is among the ``k`` largest of its row (of equals the earlier), else -inf; NaN
                  stays, and ranks below everything.
``norm``          x [R,W] [, gain [W] [, bias [W]]] → y, stats [R,3] = (mean; rstd = 1/√(variance + eps); the mean of
                  x − mean, which is what rounding took from the mean; means are 0 for rms).
                  ``kind`` rms|layer, ``eps``, ``unit_offset``: the gain is 1 + gain.
                  ``y = (x − mean) rstd gain + bias`` with both parts of the mean; the variance is about it,
                  biased; for rms it is the mean of squares. Where it overflows, rstd is 0.
``norm_grad``     g, x, stats [, gain] → gx [R,W]. ``kind``, ``unit_offset``. With ``n = (x − mean) rstd`` and
                  ``i = g gain``: ``rstd (i − n mean(i n))``, for layer also minus ``rstd mean(i)``.
``norm_param_grad`` g, x, stats → ggain [W] = ``Σ_R g n`` [, gbias [W] = ``Σ_R g``]. ``bias``: whether gbias is there.

Images
------
``unfold``  x [N,C,*sizes] → [N, C·∏kernel, ∏counts]: element (c, taps; windows) is
            ``x[n, c, stride·window + dilation·tap − before]``, 0 outside. ``kernel stride dilation before counts``: one
            for each of 1 to 3 spatial axes. There may be fewer windows than fit.
``fold``    columns [N, C·∏kernel, ∏counts] → [N,C,*sizes], the transpose: each element is the sum of what unfold
            copied of it, taps in rising order (gather form). The same attributes and ``sizes``.
``pool_max``  x [N,C,*sizes] → y [N,C,*counts], tap [N,C,*counts]: the largest element of each window, and the number of
            its tap, as a float. Of equals the first counts; NaN is larger than every number; outside of the image all
            is -inf. Attributes as `unfold`.
``pool_max_grad``  g, tap [N,C,*counts] → [N,C,*sizes]: each g goes to where its tap lies. Attributes as `fold`.
``pool_sum``  x [N,C,*sizes] → y [N,C,*counts]: the sum of each window. Attributes as `unfold`.
``pool_spread``  g [N,C,*counts] → [N,C,*sizes], the transpose of pool_sum: the sum of the windows that see an element.
            Attributes as `fold`.

Sequences
---------
``rope``            x [B,T,H,D], cos [T,r/2], sin [T,r/2] → y. Elements i and i + r/2 of the first r of D turn:
                    ``(x₁ cos − x₂ sin, x₂ cos + x₁ sin)``; ``back``: with −sin. The rest passes.
``recurrent``       from_x [B,T,nH], w_hh [nH,W], h0 [B,H] [, c0 [B,H] for lstm; c0, n0, m0 for slstm] [, b_hh [nH]]
                    [, keep [B,T]] → y [B,T,H] [, c_T [B,H], …] [, kept]. Units are heads of W, of which each sees its
                    own states. ``cell`` rnn_tanh rnn_relu (n=1, no kept), lstm (n=4; kept [B,T,5H] = i f g o c', blocks
                    side by side), gru (n=3; kept [B,T,4H] = r z n hn), slstm (n=4; kept [B,T,8H] = i f z o σ(f̃) c' n'
                    m'). ``bias``, ``resets``: whether b_hh and keep are there. Where keep, 0 or 1, is 0, the step
                    begins with zeros, whatever the states were. Equations: `numeric.cells`. y, whose last step is
                    h_T, and the other last states have gradients; all inputs but keep get them. T = 0: c_T = c0.
``recurrent_grad``  gy [, g of c_T, …], y [, kept], w_hh, h0 [, c0, …] [, keep] → g_from_x [B,T,nH] [, g_from_h [B,T,nH]
                    for gru; for the others they are equal] [, g_direct [n,B,H]: of c0 and those behind it; for gru of
                    h0, beside what goes through w_hh; as if step 0 forgot nothing]. ``cell``, ``resets``, ``last``:
                    whether the g of c_T, … are there. T is 1 or more. kept is constant.
``cell``            from_x [R,nH], from_h [R,nH], bias [m,nH]: of R/m rows each [, before [d,R,H]] → y [R,H] [, others
                    [s,R,H]] [, kept [R,kH]]: one step of a ``recurrent`` ``cell``, from what its products give. before:
                    of lstm c, of gru h, of slstm c, n, m; others: c, or c, n, m, after it; kept: i f g o, r z n hn,
                    i f z o σ(f̃). y and others have gradients; all inputs get them.
``cell_grad``       gy [, g of others], y [, others] [, kept] [, before] → g_from_x [R,nH] [, g_from_h [R,nH] for gru]
                    [, g_before [d,R,H]]. ``cell``. kept is constant. It has no gradient.
``depthwise_conv``  x [B,T,C], weight [C,1,K], past [B,K-1,C]: rows before x [, bias [C]] [, keep [B,T]] → y [B,T,C]:
                    ``y[t] = Σ_l weight[:,0,K-1-l] x[t-l] + bias``. Where keep, 0 or 1, is 0 the row and later ones see
                    nothing before it, not even NaN. ``bias``, ``resets``: whether bias and keep are there. K is 2 or
                    more. All but keep have gradients. Devices without a kernel get it as sums of shifted rows.
``depthwise_conv_grad`` gy, x, weight, past [, keep] → gx, g of weight, of past and of bias. ``resets``.
``distance_attend`` content, position, k, v [B,T,h·d], r [h,M+1,d], keys, values [B,M,h·d], age [B,1] [, keep [B,T]]
                    → y, keys, values, age. A row sees itself and up to M rows before it, of its sequence: of those
                    before the call the last ``age``. Logits are ``(content · k + position · r) / √d`` with r of
                    distance δ in row M - δ. What is kept are the last M rows, zeros where they are not of the
                    sequence. ``heads``: h; ``resets``: whether keep is there. T is 1 or more. Only y has a gradient.
``cross_attend``    table [R,d], asks and tells int32 [E,P,N] and [E,P,M], weights of q, k, v, o [E,d,d] as they
                    multiply rows, biases [E,d] [, seen [M,N]] → y [E,P,N,d]: ``softmax(q kᵀ / √e) v`` in ``heads``
                    of e numbers. ``masked``: pairs meet where seen is not 0; who meets nobody reads zeros. ``known``:
                    keys and values [K,d] stand before seen, with no weights and biases; tells are their rows.
``weigh_rows``      near [R,d], far [S,d], ids int32 [n,K], weights [n,K] → y [n,d]: ``y[i] = Σ_k weights[i,k] ·
                    row[ids[i,k]]``; rows of far have the numbers from R on. What has weight 0 is not read.
``linear_scan``     u [B,T,F], a [B,T,F] or [F], s0 [B,F] [, keep [B,T]] → s [B,T,F]:
                    ``s[t] = keep[t] a[t] s[t-1] + u[t]`` from ``s[-1] = s0`` on. ``reverse``: without s0,
                    ``s[t] = keep[t+1] a[t+1] s[t+1] + u[t]`` from ``s[T-1] = u[T-1]`` on. ``keep``: whether it is
                    there; where it is 0 nothing passes, not even NaN. It has no gradient.
``rotate_scan``     u [B,T,2F], g [F], φ [F], s0 [B,2F] [, keep [B,T]] → s [B,T,2F]: ``s[t] = keep[t] R s[t-1] + u[t]``
                    from ``s[-1] = s0`` on, with R = [[g, -φ], [φ, g]] for the pairs (i, i + F). ``reverse``: without
                    s0, ``s[t] = keep[t+1] Rᵀ s[t+1] + u[t]`` from ``s[T-1] = u[T-1]`` on. ``keep``: whether it is
                    there; where it is 0 nothing passes, not even NaN. It has no gradient.
``edge_attend``     q [R,B or 1,h·d], kv [S,B,h·(d+e)]: the keys of all heads before their values, bias [E,h or 1], and
                    the edges as int32 lists: starts [R+1] of each receiver, senders [E], receivers [E], and for the
                    gradient out_starts [S+1], out_edges [E]: edges by sender → m [R,B,h·e], weights [E,B,h]. Weights
                    are the softmax over a receiver's edges of ``q·k / √d + bias``, m is Σ weight · v, in the order of
                    edges. An edge at -inf does not count; without any m is 0. ``heads``; ``most_in``, ``most_out``:
                    most edges of a receiver and of a sender. q, kv and bias have gradients.
``edge_attend_grad`` g of m, weights, q, kv, starts, senders, receivers, out_starts, out_edges → gradients of the scores
                    [E,B,h], of q, of kv. Attributes as ``edge_attend``. It has no gradient.
``scan``            sequences [T, …] …, constants …, states … → ys [T, …] …, last states … [, trails [T, …] …].
                    ``body``: a `Graph` of fixed shapes, without buffers: (x_t …, constants …, states …) → (y_t …, new
                    states …). It runs T = ``length`` times, from the first step on or, with ``reverse``, from the last;
                    ys stand where their x do. ``sequences``, ``states``: how many of each. Sequences and constants may
                    be int32. ys and last states have gradients; sequences, constants and first states get them. With
                    ``trails`` there are the states before each step, for the gradient: a scan the other way round whose
                    body computes a step again and goes back through it, and which carries the gradients of the states
                    and, as sums, of the constants, but for those that one product gives behind it (`hoisting`). It has
                    no trails, and no gradient. A device without a loop has the steps one behind the other (`unroll`),
                    and those backwards find what the steps forward made.

Noise and training
------------------
``gumbel``      x [R,C], positions int32 [R] → x plus Gumbel noise: `numeric.noise.gumbel` with ``seed``.
``normal``      x, key int32 [2] → x plus standard normal noise: `numeric.noise.normal` with ``stream``, as dropout's,
                and ``first``, the number of the first element.
``dropout``     x, key int32 [2] → ``x / (1 − p)`` where an element is kept, else 0, whatever x is: `numeric.noise`.
                ``p`` in 0 … 1; ``stream``: 32 bits that tell this layer's choices from others'.
``loss``        prediction, target [, weights] → total [1], count [1], gradient of total. ``name`` and fields, all of
                `train.losses`: mse; l1; huber ``delta``; bce ``logits``: any shape, target and weights alike.
                cross_entropy ``ignore_index label_smoothing``: prediction [R,C], target int32 [R] or float32 [R,C],
                weights [R].
                Terms of weight 0 are 0, even if NaN or infinite (cross_entropy only).
                count: sum of weights, or number of terms.
``update``      param, grad, slots …, scalars [5] → param, slots …; ``in_place``: outputs are the buffers of inputs
                with a key. ``name`` sgd momentum rmsprop adam adamw, and the fields of `train.optim` except lr.
                Slots in the optimiser's order. scalars: rate; factor on the gradient, before all else; momentum: 1 in
                the first update (velocity = g), else 0; adam, adamw: 1/(1 − β₁ᵗ); then 1/√(1 − β₂ᵗ); last: 0 leaves
                everything as it is, whatever the gradient.
``sumsq``       1 or more x → [1], the sum of all squares. Infinite or NaN if any element is.
``fake_quant``  x → the nearest values that ``scheme`` (text) can hold: ``decode(encode(x))``, bit-equal to
                `volumetric.dtypes`; groups along the last axis. Its gradient passes straight through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from volumetric._typing import ROWS, Array, Shape

if TYPE_CHECKING:
    from volumetric.graph.guards import Guard

TensorType = Literal["float32", "int32"]
Role = Literal["input", "constant", "parameter", "state", "scratch"]
Derived = Literal["positions"]
"""What an input that follows from the places of a call's rows holds: the position of each in its sequence, int32."""

HELD = -(1 << 40)
"""Stands in the shape of a state for the rows of a sequence that it holds."""

_NAMED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"norm": ("x", "weight", "bias"), "grouped_norm": ("x", "weight")}
)
"""What the inputs of operations are called that have no ``roles``, where devices ask by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One array of a graph.

    Attributes
    ----------
    name : for people; need not be unique
    shape : sizes of 1 or more axes; -n is n times the rows of a call
    key : buffer that outlives the run, or None
    role : input: each run takes it from the host, or derives it from the place of its rows; constant: known when the
        graph is built; parameter: a buffer of the network or of its training; state: a buffer of a sequence; scratch:
        made by a node
    """

    name: str
    shape: Shape
    dtype: TensorType = "float32"
    key: str | None = None
    role: Role = "scratch"

    @property
    def size(self) -> int:
        """Number of elements; negative where rows are open."""
        return prod(self.shape)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return prod(self.shape[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation: the tensors that it reads and writes, its static attributes, and the layer it belongs to.

    Attributes
    ----------
    mixes : a row of the result depends on other rows of the call, on their number, or on its place among them
    tail : no later node mixes rows, so when only the last row is wanted the node may run on that alone
    guard : where nobody reads the result, so that the node need not run
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    where: str = ""
    mixes: bool = False
    tail: bool = False
    guard: Guard | None = None

    def named(self, role: str) -> int | None:
        """Input that plays a role, or None."""
        names = self.attrs.get("roles") or _NAMED.get(self.op, ())
        return self.inputs[names.index(role)] if role in names[: len(self.inputs)] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in execution order.

    Attributes
    ----------
    inputs, outputs : tensors that a run takes from the host and hands back to it
    constants : tensor → its value, int32 or float64; a device converts floats to its own type once
    derived : those of `inputs` that nobody gives: they follow from the places of a call's rows in their sequence
    piece : rows that may run at a time, because a node reads what a later one made so many rows earlier; None: any
    whole : a row may depend on later rows of its call: those of a sequence must come in one
    detached : tensors at which differentiation stops
    flush : numbers below 1.2e-38, too small to be normal, may count as 0: processors are slow with them, and gradients
        that fade over many layers or steps of time are full of them
    """

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, Array]
    derived: Mapping[int, Derived] = field(default_factory=lambda: MappingProxyType({}))
    piece: int | None = None
    whole: bool = False
    detached: frozenset[int] = frozenset()
    flush: bool = False

    @property
    def given(self) -> tuple[int, ...]:
        """Inputs that do not follow from the places of rows."""
        return self.values(self.inputs)

    @property
    def keyed(self) -> dict[str, Tensor]:
        """Key → one of its tensors, for every persistent buffer that the graph reads or writes."""
        used = {i for node in self.nodes for i in (*node.inputs, *node.outputs)} | {*self.inputs, *self.outputs}
        found: dict[str, Tensor] = {}
        for i in sorted(used):
            key = self.tensors[i].key
            if key is not None:
                found.setdefault(key, self.tensors[i])
        return found

    def keys(self, node: Node) -> dict[str, str]:
        """Role → key of the parameters that a node names."""
        names = node.attrs.get("roles") or _NAMED.get(node.op, ())
        pairs = zip(names, (self.tensors[i] for i in node.inputs), strict=False)
        return {role: t.key for role, t in pairs if t.role == "parameter" and t.key is not None}

    def states(self, node: Node) -> dict[str, str]:
        """Role → key of the states that a node names."""
        pairs = zip(node.attrs.get("roles", ()), (self.tensors[i] for i in node.inputs), strict=False)
        return {role: t.key for role, t in pairs if t.role == "state" and t.key is not None}

    def values(self, tensors: Iterable[int]) -> tuple[int, ...]:
        """Those of `tensors` that a call has rows of: given, or made by nodes."""
        return tuple(i for i in tensors if self.tensors[i].role in ("input", "scratch") and i not in self.derived)

    def readers(self, tensor: int) -> Iterator[int]:
        """Numbers of the nodes that read a tensor."""
        return (at for at, node in enumerate(self.nodes) if tensor in node.inputs)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for i in self.inputs:
            yield f"{self._show(i)} = input"
        for node in self.nodes:
            shown = ((k, v) for k, v in node.attrs.items() if k not in ("roles", "body") and v not in (None, False, ()))
            attrs = " ".join(f"{k}={v}" for k, v in shown)
            args = ", ".join(map(self._name, node.inputs))
            where = f" @{node.where}" if node.where else ""
            tail = " tail" if node.tail else ""
            tail += f" if %{node.guard.tensor}[:, {node.guard.column}]" if node.guard else ""
            yield f"{', '.join(map(self._show, node.outputs))} = {node.op}({args}) {attrs}".rstrip() + where + tail
            bodies = (v for v in node.attrs.values() if isinstance(v, Graph))
            yield from (f"    {line}" for body in bodies for line in body._lines())
        yield "return " + ", ".join(f"%{i}" for i in self.outputs)

    def _name(self, i: int) -> str:
        tensor = self.tensors[i]
        return f"{tensor.key}" if tensor.role in ("parameter", "state") else f"%{i}"

    def _show(self, i: int) -> str:
        tensor = self.tensors[i]
        key = f" {tensor.key!r}" if tensor.key is not None else ""
        return f"%{i}[{'×'.join(map(_size, tensor.shape))}]{key}"


def _size(n: int) -> str:
    if n == HELD:
        return "held"
    return str(n) if n >= 0 else "T" if n == ROWS else f"{-n}T"
