"""Column: experts on one input, with a separate mixture for each row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers.containers import Container, Residual, prefixed_params
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, as_rows, emit_join, linear
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
    show_shape,
)
from volumetric.layers.scaffolds.scaffold import emit_inside, own_params

ROUTER_BOUND = 0.02
"""Bound of the initial matrices of the prior; with zeros it would never have a gradient."""
NEAR_ZERO = 1e-3
"""Bound of the other initial parameters of router and mixer."""


@layer("column")
class Column(Container):
    """A mixture of experts with states, on ``[…, embed_dim]``; a single expert is computed without the mixture.

    ::

        u = x / √(mean(x²) + eps) ⊙ w                Δᵢ = expertᵢ(u) − u
        sᵢ = softmaxⱼ((W_q u + bᵢ) · (Wₖ Δⱼ) / √key_dim)                 mixer: experts look at one another
        Δ̂ᵢ = Δᵢ + Wₒ Σⱼ sᵢⱼ Wᵥ Δⱼ
        pᵢ = (W κᵢ) · (W′ c) / √key_dim                                  prior, the same for all rows
        ρᵢ = (Wₜ u) · κ′ᵢ / (refine_temperature · √refine_dim)           refiner, row by row
        a = softmax(top_k(p) / temperature + refine · ρ)
        R = Σᵢ aᵢ Δ̂ᵢ + (u − x)
        y = x + α R + α′ (W₂ gelu(W₁ R + b₁) + b₂)                       2 · embed_dim hidden features

    Every expert runs on every row, so its state includes all rows. Each row has its own mixture. Scores of experts
    outside the `top_k` have gradients too. States and parameters of experts are named by their numbers, ``0/…``.

    Initialisation: matrices of the prior lie between ±0.02, and the other routing parameters between ±0.001. With zeros
    the prior would never have a gradient. Wₒ is zero, α and α′ are 1.

    Attributes
    ----------
    embed_dim : width of input and output
    experts : at least one, from rows of this width to such rows
    key_dim : width of the keys of prior and mixer; None: embed_dim
    temperature : of the prior
    top_k : number of experts with the largest prior that have a weight; None: all
    scale : the prior's scores are divided by the ``"root"`` of key_dim, or by key_dim itself (``"full"``)
    refine : weight of the refiner; 0: there is none
    refine_dim : width of its keys; None: embed_dim
    refine_temperature : of the refiner
    prune : experts without a weight do not take part in the mixer either
    balance : weight of a balance term, which backprop adds to the loss of each row in training: E Σᵢ (mean of aᵢ over
        the rows of the sequence)². It is 1 if all E experts are used equally, and E if one is. Reported losses do not
        include it
    eps : of the norm
    """

    children_field: ClassVar[str | None] = "experts"

    embed_dim: int
    experts: tuple[LayerSpec, ...]
    key_dim: int | None = None
    temperature: float = 1.0
    top_k: int | None = None
    scale: Literal["root", "full"] = "root"
    refine: float = 0.1
    refine_dim: int | None = None
    refine_temperature: float = 1.0
    prune: bool = False
    balance: float = 0.0
    eps: float = 2.0**-23

    def __post_init__(self) -> None:
        """Check the fields."""
        optional = [name for name in ("key_dim", "refine_dim", "top_k") if getattr(self, name) is not None]
        expect_positive(self, "embed_dim", *optional)
        if not self.experts:
            raise SpecError("column: needs at least one expert")
        if any(isinstance(expert, Residual) for expert in self.experts):
            raise SpecError("column: a residual cannot be an expert", hint="wrap it in a sequential")
        if self.top_k is not None and self.top_k > len(self.experts):
            raise SpecError(f"column: top_k must be at most the {len(self.experts)} experts, got {self.top_k}")
        if self.scale not in ("root", "full"):
            raise SpecError(f"column: scale must be 'root' or 'full', got {self.scale!r}")
        for name, least in (("temperature", 0.0), ("refine_temperature", 0.0), ("eps", 0.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > least):
                raise SpecError(f"column: {name} must be a number above {least:g}, got {value!r}")
        for name in ("refine", "balance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SpecError(f"column: {name} must be a number of at least 0, got {value!r}")

    @property
    def keys(self) -> int:
        """Width of the keys of prior and mixer."""
        return self.key_dim or self.embed_dim

    @property
    def local_keys(self) -> int:
        """Width of the keys of the refiner."""
        return self.refine_dim or self.embed_dim

    @property
    def prior_factor(self) -> float:
        """Factor on the products of the prior."""
        size = math.sqrt(self.keys) if self.scale == "root" else self.keys
        return 1 / size

    @property
    def refine_factor(self) -> float:
        """Factor on the products of the refiner, its weight included."""
        return self.refine / (self.refine_temperature * math.sqrt(self.local_keys))

    @property
    def chosen_count(self) -> int | None:
        """Number of experts with a weight; None: all."""
        return None if self.top_k == len(self.experts) else self.top_k

    def own_specs(self) -> tuple[ParamSpec, ...]:
        """Return the parameters of the column without those of the experts."""
        if len(self.experts) == 1:
            return ()
        count, width, keys, local = len(self.experts), self.embed_dim, self.keys, self.local_keys

        def near(name: str, *shape: int, bound: float = NEAR_ZERO, packable: bool = True) -> ParamSpec:
            """Return a parameter with initial values near 0; matrices of the router are delicate."""
            delicate = packable and not name.startswith("mix.")
            fresh = {"init": "uniform", "bounds": (-bound, bound), "packable": packable, "delicate": delicate}
            return ParamSpec(name=name, shape=shape, **fresh)

        refiner = (near("refine.q.weight", local, width), near("refine.keys", count, local, packable=False))
        return (
            ParamSpec(name="norm.weight", shape=(width,), init="ones", packable=False),
            near("prior.context", width, packable=False),
            near("prior.keys", count, keys, packable=False),
            near("prior.q.weight", keys, width, bound=ROUTER_BOUND),
            near("prior.k.weight", keys, keys, bound=ROUTER_BOUND),
            *(refiner if self.refine else ()),
            near("mix.q.weight", keys, width),
            near("mix.k.weight", keys, width),
            near("mix.v.weight", width, width),
            *affine_params("mix.out.", width, width, bias=False, init="zeros"),
            near("mix.bias", count, keys, packable=False),
            *affine_params("head.up.", 2 * width, width, bias=True),
            *affine_params("head.down.", width, 2 * width, bias=True),
            *(ParamSpec(name=name, shape=(1,), init="ones", packable=False) for name in ("alpha", "alpha_head")),
        )

    def params(self) -> tuple[ParamSpec, ...]:
        return *self.own_specs(), *prefixed_params(self.children())

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        for i, expert in enumerate(self.experts):
            try:
                shape = expert.output_shape(inputs[0])
            except ShapeError as error:
                raise ShapeError(f"expert {i} of column: {error}", hint=error.hint) from None
            if shape != inputs[0]:
                expected = show_shape(inputs[0])
                raise ShapeError(
                    f"expert {i} of column: maps {expected} to {show_shape(shape)}, expected the same shape"
                )
        return inputs[0]

    def prior(self, p: Mapping[str, Array]) -> Array:
        """Return the scores of all experts before temperature and `top_k`, ``[E]``."""
        context = p["prior.q.weight"] @ p["prior.context"]
        keys = p["prior.keys"] @ p["prior.k.weight"].T
        return keys @ context * context.dtype.type(self.prior_factor)

    def emit(self, scope: Scope, x: int) -> int:
        if len(self.experts) == 1:
            return emit_inside(scope, "0", self.experts[0], x)
        work, p, shape = scope.work, own_params(scope, self), scope.work.shape(x)
        with work.at(scope.path, mixes=False):
            u = work.reshape(work.norm(as_rows(work, x), p["norm.weight"], kind="rms", eps=self.eps), shape)
        outputs = [emit_inside(scope, str(i), expert, u) for i, expert in enumerate(self.experts)]
        with work.at(scope.path, mixes=False):
            x, u, *outputs = (as_rows(work, of) for of in (x, u, *outputs))
            less_u = work.affine(u, -1.0)
            changes = [emit_join(work, (of, less_u), "add") for of in outputs]
            own, mixture = _mix_experts(scope, self, p, u, changes)
            mixed = linear(work, p, ("mix.out.",), linear(work, p, ("mix.v.",), mixture))
            whole = emit_join(work, (own, mixed, u, work.affine(x, -1.0)), "add")
            head = linear(work, p, ("head.down.",), linear(work, p, ("head.up.",), whole, activation="gelu"))
            parts = (work.binary("mul", of, p[name]) for of, name in ((whole, "alpha"), (head, "alpha_head")))
            return work.reshape(work.add(x, *parts), shape)


LEAST = float(np.finfo(np.float32).min)
"""Lower scores count as -inf."""


def _mix_experts(scope: Scope, spec: Column, p: dict[str, int], u: int, changes: list[int]) -> tuple[int, int]:
    """Emit ``Σᵢ aᵢ Δᵢ`` and ``Σᵢⱼ aᵢ sᵢⱼ Δⱼ``: the later products of the mixer are the same for all experts."""
    work, count, keys = scope.work, len(changes), spec.keys
    rows, width = work.shape(u)
    # Fused row operations come first, so that the other operations stay together.
    queries = linear(work, p, ("mix.q.",), u)
    read = work.concat([linear(work, p, ("mix.k.",), of) for of in changes], 1)
    every = work.concat(changes, 1)
    local = linear(work, p, ("refine.q.",), u) if spec.refine else None
    queries, read = work.reshape(queries, (rows, 1, keys)), work.reshape(read, (rows, count, keys))
    every = work.reshape(every, (rows, count, width))
    prior = _prior(scope, spec, p)
    queries = work.binary("add", queries, work.reshape(p["mix.bias"], (1, count, keys)))
    scores = work.affine(work.gemm(queries, read, trans_b=True), keys**-0.5)
    if spec.prune and spec.chosen_count is not None:
        dropped = work.binary("greater", work.scalar(LEAST), prior)
        scores = work.binary("mask", scores, work.reshape(work.affine(dropped, -1.0, 1.0), (1, 1, count)))
    logits = work.broadcast(prior, (rows, count))
    if local is not None:
        table = work.reshape(p["refine.keys"], (1, count, spec.local_keys))
        refined = work.gemm(work.reshape(local, (1, *work.shape(local))), table, trans_b=True)
        logits = work.add(prior, work.affine(work.reshape(refined, (rows, count)), spec.refine_factor))
    a = work.emit("softmax", (logits,))[0]
    if spec.balance and scope.training is not None:
        scope.training.penalties.append(_balance(scope, spec, a))
    a = work.reshape(a, (rows, 1, count))
    looks = work.reshape(work.softmax(work.reshape(scores, (rows * count, count))), (rows, count, count))
    both = work.concat((a, work.gemm(a, looks)), 1)
    own, mixture = work.split(work.gemm(both, every), (1, 1), 1)
    return work.reshape(own, (rows, width)), work.reshape(mixture, (rows, width))


def _prior(scope: Scope, spec: Column, p: dict[str, int]) -> int:
    """Emit the prior scores of experts, the same for all rows, ``[1, E]``, -inf for experts without a weight."""
    work, count, keys = scope.work, len(spec.experts), spec.keys
    context = work.reshape(p["prior.context"], (1, 1, spec.embed_dim))
    query = work.gemm(context, work.reshape(p["prior.q.weight"], (1, keys, spec.embed_dim)), trans_b=True)
    table = work.gemm(
        work.reshape(p["prior.keys"], (1, count, keys)),
        work.reshape(p["prior.k.weight"], (1, keys, keys)),
        trans_b=True,
    )
    scores = work.reshape(work.gemm(query, table, trans_b=True), (1, count))
    scores = work.affine(scores, spec.prior_factor)
    chosen = scores if spec.chosen_count is None else work.keep_largest(scores, spec.chosen_count)
    return work.affine(chosen, 1 / spec.temperature)


def _balance(scope: Scope, spec: Column, a: int) -> int:
    """Emit the balance term of the loss, [1]: its mean over rows, times their number."""
    work = scope.work
    each = scope.as_sequences(a)
    length, count = work.shape(each)[1:]
    squares = work.reduce(work.unary(work.reduce(each, "mean", (1,)), "square"), "sum", (0, 1, 2))
    return work.affine(work.reshape(squares, (1,)), spec.balance * count * length)
