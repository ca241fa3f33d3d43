"""mLSTM: a memory of matrices with exponential gates (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from typing import ClassVar

from volumetric._typing import Shape
from volumetric.graph.state import StateSpec, is_sequence
from volumetric.layers.base import (
    Init,
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.causal_conv import conv_params, conv_state
from volumetric.layers.head_norm import head_norm_params
from volumetric.layers.projections import (
    Maps,
    Projection,
    axon_map,
    check_projection,
    map_params,
    map_states,
)
from volumetric.layers.scope import Scope
from volumetric.layers.slstm import check_heads

MOST = 80.0
"""Bound of -m in the least divisor, so that float32 holds it; what is divided by that much is nothing."""


_FRESH: dict[str, Init] = {"i/weight": "zeros", "i/bias": "normal_tenth", "f/weight": "zeros", "f/bias": "forget"}
"""Gates that remember begin as those that do not."""


@layer("mlstm")
class MLSTM(LayerSpec):
    """``y = qᵀC / max(|qᵀn|, exp(-m))`` with ``C = f C + i k vᵀ / √d`` and ``n = f n + i k / √d``, on ``[…, T, E]``.

    By heads of d channels, with ``q = k = silu(conv(x))``, ``v = x``, and one gate each a head,
    ``[ĩ, f̃] = W [q, k, v] + b``. They are divided by the largest so far, whose logarithm is the state m:

    ``m = max(ĩ, m[t - 1] + log σ(f̃))``, ``i = exp(ĩ - m)``, ``f = exp(m[t - 1] + log σ(f̃) - m)``

    (Beck et al. 2024). 1e-6 is added to the divisor; y is normalised head by head, with a gain and no bias. A call goes
    on from the states C, n and m and the last rows that the convolution saw, and forgets them where the memory's resets
    say so; in the VJP they are constants. Devices compute windows in chunks of rows as products of matrices.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    kernel_size : rows that the convolution sees
    chunk_size : rows that devices compute at once; the same numbers up to rounding. Beyond 64, float32 loses digits
    projection : ``"axon"``: an `AxonLinear` makes each gate, another one, behind SiLU, ``q = k`` of the convolution's
        output, and a fourth v of x
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int
    num_heads: int = 4
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
        """What makes queries and keys, values and gates that remember."""
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
        from volumetric.layers.nodes.mlstm import emit_mlstm  # which imports this module

        return emit_mlstm(scope, self, x)
