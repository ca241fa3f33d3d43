"""XLAttention: attention over a row and a bounded memory of earlier rows, by distance (Transformer-XL).

Dai et al. 2019, arXiv 1901.02860.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.distance_attention import FEW, DistanceMemory, DistanceRead, attend, distance_attend
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear, start_state
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


@layer("xl_attention")
class XLAttention(LayerSpec):
    """Transformer-XL's attention over a row and up to `memory` rows before it, by content and by distance.

    ::

        q, k, v = W_q x + b, W_k x + b, W_v x + b                        by heads of d channels
        r_δ = W_r [sin(δ ω), cos(δ ω)]         ω_j = 10000^(−2 j / E)    δ = 0 … memory
        ℓ_s = ((q + u) · k_s + (q + w) · r_δ) / √d         δ rows back, of the same sequence
        y = W_o Σ_s softmax(ℓ)_s v_s + b

    A row sees the same rows however a sequence is split into calls, and none from before a reset. At the start of a
    sequence it sees fewer rows, and no empty ones. Keys and values are stored as they were computed: after an update of
    the weights, older rows keep the values of the old weights. In gradients they are constants.

    The state of a sequence is the last keys and values ``[memory, heads · d]`` and how many of them are its own. Calls
    on rows that continue from a state run row by row. u and w, one vector a head, are zeros at first. States and
    parameters of ``projection="axon"`` are under ``q/``, ``k/`` and ``v/``.

    Dai et al. 2019 (arXiv 1901.02860).

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads
    head_dim : width of a head; None: the heads divide the width
    memory : rows before a row that it sees
    bias : whether the products with rows have biases
    projection : ``"axon"``: an `AxonLinear` each computes queries, keys and values. These maps have a memory, so a row
        depends on more rows than it attends to
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int = positional()
    num_heads: int = positional(default=4)
    head_dim: int | None = None
    memory: int = 128
    bias: bool = True
    projection: Projection = "dense"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_projection(self, self.projection)
        optional = () if self.head_dim is None else ("head_dim",)
        expect_positive(self, "embed_dim", "num_heads", "memory", *optional)
        if self.head_dim is None and self.embed_dim % self.num_heads:
            raise SpecError(f"xl_attention: {self.num_heads} heads do not divide a width of {self.embed_dim}")

    @property
    def by_head(self) -> tuple[int, int]:
        """Heads, and the width of one."""
        return self.num_heads, self.head_dim or self.embed_dim // self.num_heads

    @property
    def inner(self) -> int:
        """Width of all heads."""
        return self.by_head[0] * self.by_head[1]

    @property
    def maps(self) -> Maps:
        """The `AxonLinear` maps to queries, keys and values."""
        if self.projection == "dense":
            return {}
        return {name: axon_map(self.embed_dim, self.inner, bias=self.bias) for name in ("q", "k", "v")}

    def params(self) -> tuple[ParamSpec, ...]:
        products = (affine_params(f"{n}.", self.inner, self.embed_dim, bias=self.bias) for n in ("q", "k", "v"))
        return (
            *(map_params(self.maps) if self.maps else (param for of in products for param in of)),
            *affine_params("r.", self.inner, self.embed_dim, bias=False),
            ParamSpec(name="content_bias", shape=self.by_head, init="zeros", packable=False),
            ParamSpec(name="position_bias", shape=self.by_head, init="zeros", packable=False),
            *affine_params("o.", self.embed_dim, self.inner, bias=self.bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        own = (StateSpec(name=name, shape=shape, kind="fixed") for name, shape in self.shapes.items())
        return *own, *map_states(self.maps, *inputs)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the states by name; ``age`` is the number of rows of the memory that belong to the sequence."""
        rows = (self.memory, self.inner)
        return {"keys": rows, "values": rows, "age": (1,)}

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def codes(self) -> Array:
        """Return the codes of the distances ``memory`` … 0, ``[memory + 1, embed_dim]``."""
        count = (self.embed_dim + 1) // 2
        frequencies = 10000.0 ** (-2.0 * np.arange(count) / self.embed_dim)
        turns = np.arange(self.memory, -1, -1)[:, None] * frequencies
        return np.concatenate([np.sin(turns), np.cos(turns)], axis=-1)[:, : self.embed_dim]

    def distances(self, length: int) -> Array:
        """Return the distance from each row of the window back to all rows, with the memory, ``[T, memory + T]``."""
        return self.memory + np.arange(length)[:, None] - np.arange(self.memory + length)

    def emit(self, scope: Scope, x: int) -> int:
        work, inner = scope.work, self.inner
        p = {of.name: scope.param(of.name, of.shape) for of in self.params() if "/" not in of.name}
        heads, width = self.by_head
        if self.maps:
            qkv = [scope.child(name).emit(of, x) for name, of in self.maps.items()]
        elif work.shape(x)[0] < 0:  # one product for all three: devices may have fused row operations
            with work.at(scope.path, mixes=False):
                joined = linear(work, p, ("q.", "k.", "v."), x)
            qkv = work.split(joined, (inner,) * 3, len(work.shape(x)) - 1)
        else:
            qkv = [linear(work, p, (name,), x) for name in ("q.", "k.", "v.")]
        q, k, v = map(scope.as_sequences, qkv)
        batch, length, _ = work.shape(k)
        content, position = (
            work.binary("add", q, work.reshape(p[name], (inner,))) for name in ("content_bias", "position_bias")
        )
        of = DistanceRead(content, position, k, v)
        codes = linear(work, p, ("r.",), work.constant(self.codes(), "codes"))
        r = work.permute(work.reshape(codes, (self.memory + 1, heads, width)), (1, 0, 2))
        memory = DistanceMemory(*(start_state(scope, x, name, shape) for name, shape in self.shapes.items()))
        if length < 0:

            def body(
                inner: GraphBuilder, now: list[int], constants: list[int], states: list[int]
            ) -> tuple[list[int], list[int]]:
                y, after = distance_attend(inner, heads, DistanceRead(*now), constants[0], DistanceMemory(*states))
                return [y], list(after)

            steps = [work.reshape(work.permute(each, (1, 0, 2)), (length, batch, 1, inner)) for each in of]
            [y], ends = work.scan(body, steps, [r], memory)
            y, memory = work.permute(work.reshape(y, (length, batch, inner)), (1, 0, 2)), DistanceMemory(*ends)
        elif length:
            few = scope.training is None and length <= FEW
            emit = distance_attend if few else attend
            y, memory = emit(work, heads, of, r, memory, scope.keep_mask(x))
        else:
            y = v
        if scope.keeps_state(x):
            for name, value in memory._asdict().items():
                scope.keep_state(name, value)
        y = work.reshape(y, (*work.shape(x)[:-1], inner))
        with work.at(scope.path, mixes=False):
            return linear(work, p, ("o.",), y)
