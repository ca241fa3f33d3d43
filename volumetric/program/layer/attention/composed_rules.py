"""Rules composed of other rules, and their nodes."""

from __future__ import annotations

from volumetric.base.errors import SpecError
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.head_ops import ByHeads, affine, cross_attention
from volumetric.program.layer.attention.rule_base import AttentionInputs, check_positive, lowering, register_rule

COMPRESS, READOUT = "compress.", "readout."


@register_rule("perceiver")
class PerceiverAttention(ByHeads):
    """``Z = cross(latents ← source)``, ``a = cross(queries ← Z)`` (Jaegle et al. 2021).

    Attributes
    ----------
    latents : number of latents
    """

    whole = True

    latents: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads", "latents")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        latents = ParamSpec(name="latents", shape=(self.latents, d), init="normal", packable=False)
        return latents, *self.maps(d, COMPRESS, READOUT)


@register_rule("mixture")
class MixtureAttention(ByHeads):
    """``a = Σ_j w_j cross_j``, expert j on the j-th part of the keys, ``w = softmax(top_k(W q + b))`` for each query.

    Parts have ``max(1, ⌊M / experts⌋)`` keys, the last part the rest; an expert without keys is not chosen.

    Attributes
    ----------
    experts : number of experts
    top_k : number of experts per query
    """

    whole = True

    experts: int = 4
    top_k: int = 2

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads", "experts", "top_k")
        if self.top_k > self.experts:
            raise SpecError(f"mixture: top_k {self.top_k} is more than its {self.experts} experts")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        maps = self.maps(d, *(f"experts.{j}." for j in range(self.experts)))
        return *maps, *affine_params("router.", self.experts, d, bias=True)

    def ranges(self, keys: int) -> list[tuple[int, int]]:
        """Return the key range of each expert with keys: the first, and one past the last."""
        size, last = max(1, keys // self.experts), self.experts - 1
        parts = [(j * size, keys if j == last else min((j + 1) * size, keys)) for j in range(self.experts)]
        return [(start, stop) for start, stop in parts if start < stop]


@lowering("perceiver")
def _perceiver(of: AttentionInputs) -> int:
    work, rule = of.work, of.rule
    assert isinstance(rule, PerceiverAttention)
    _, batch, d = of.size
    edges, count, _ = work.shape(of.p["latents"])
    latents = work.broadcast(work.reshape(of.p["latents"], (edges, 1, count, d)), (edges, batch, count, d))
    compressed = cross_attention(work, of.p, rule.heads, latents, of.keys, of.values, prefix=COMPRESS)
    return cross_attention(work, of.p, rule.heads, of.queries, compressed, compressed, prefix=READOUT)


@lowering("mixture")
def _mixture(of: AttentionInputs) -> int:
    work, rule = of.work, of.rule
    assert isinstance(rule, MixtureAttention)
    parts = rule.ranges(of.pairs.keys)
    logits = work.part(affine(work, of.p, "router.", of.queries), 3, 0, len(parts))
    edges, batch, count, wide = work.shape(logits)
    rows = work.reshape(logits, (edges * batch * count, wide))
    if rule.top_k < wide:
        rows = work.keep_largest(rows, rule.top_k)
    weights = work.reshape(work.softmax(rows), (edges, batch, count, wide))
    expert_outputs = []
    for j, (start, stop) in enumerate(parts):
        keys, values = (work.part(x, 2, start, stop) for x in (of.keys, of.values))
        own = cross_attention(work, of.p, rule.heads, of.queries, keys, values, prefix=f"experts.{j}.")
        expert_outputs.append(work.binary("mul_nonzero", own, work.part(weights, 3, j, j + 1)))
    return work.add(*expert_outputs)
