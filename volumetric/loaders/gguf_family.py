"""Names and layouts of a GGUF architecture: the class that each family fills in."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.layers import Gate, LayerSpec, MultiHeadAttention, Parallel
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint, NameRule
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord

ReadValues: TypeAlias = Callable[[Config, TensorSource], Mapping[str, Any]]
"""Metadata without the architecture's prefix, and the file → further values with Hugging Face's names."""
WriteValues: TypeAlias = Callable[[Config, Network], Mapping[str, Any]]
"""Configuration and network → further metadata without the prefix; NumPy scalars, because the file stores types."""
Runs: TypeAlias = "float | tuple[tuple[int, float], ...]"
"""A factor of a tensor; or several, each with its number of rows."""
Fold: TypeAlias = Callable[[Config, Network], tuple[Config, Mapping[str, Runs]]]
"""Configuration and its network → network without factors, and the factors by tensor."""

ROPE_FACTORS: Final = "rope_freqs.weight"
"""Tensor with Llama 3.1's frequency scaling: plain over scaled frequency, for each pair."""
KV_HEADS: Final = "attention.head_count_kv"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
"""Tensors of longrope: divisors of the frequency of each pair, beyond and within the original context."""

OUTER: Final[Mapping[str, str]] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
ATTENTION: Final[Mapping[str, str]] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
HEAD_NORMS: Final[Mapping[str, str]] = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
GATED_MLP: Final[Mapping[str, str]] = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
PRE_NORMS: Final[Mapping[str, str]] = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
EXPERTS: Final[Mapping[str, str]] = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
"""Names of a mixture; the numbered experts of Hugging Face are stacked: ``[count, out, in]``."""
PRE_NORM_LAYER: Final = {**PRE_NORMS, **ATTENTION, **GATED_MLP}
"""Names in a layer of the pre-norm decoder of Llama and related models."""

_NUMBER: Final = re.compile(r"(?<=\.experts\.)(\d+)\.")
"""Matches the number of an expert in Hugging Face's names."""


def _no_values(*_: object) -> Mapping[str, Any]:
    return {}


def _always_readable(_: Network) -> str:
    return ""


def _no_differences(_: Network) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFFamily:
    """One architecture of GGUF files; the defaults are those of the pre-norm decoder.

    All gains are stored in full, also in families whose checkpoints store them minus one, and all matrices as
    ``[out, in]``; the parts of fused tensors are concatenated. This follows from the network and needs no entry.

    Attributes
    ----------
    architecture : the files' ``general.architecture``
    model_type, auto_class : family of a configuration, and its class in transformers
    inner : name within a layer → name within ``blk.N``; without ``.weight`` or ``.bias``, and without an expert's
        number
    outer : the same for tensors outside layers
    stack : prefix of the layer's number in Hugging Face's names; one for each of several families
    split : name of a tensor of `inner` that GGUF files split → last part of a parameter's name → name in the file; the
        parts of each expert are concatenated
    renamed : Hugging Face's usual name of a configuration value → this family's name, None if it has none
    epsilon : this family's name of the norms' epsilon
    rms : whether the norms are RMS norms; None: derived from the name of `epsilon`
    interleaved : query and key rows are stored with the rotary halves alternating (ggml's rope of type NORM)
    biases : products and norms of a layer that may have a bias: llama.cpp rejects a file with any other tensor
    singles : tensors that llama.cpp does not convert, so they are always float32; by their name, or their name in a
        layer
    bare : names of `inner` that are complete names of tensors, without ``.weight``
    fold : factors of a configuration for which files have no key, and that are multiplied into the weights
    attends : whether there is a layer with attention
    mixed : whether some layers have no attention
    partial : whether a part of a head may be rotated
    head : whether the head of files is the embedding (``"shared"``, also without a head), a separate tensor
        (``"own"``), or either (``"either"``): llama.cpp rejects a file without ``output.weight`` if it expects it, and
        the reverse
    factors : whether llama.cpp scales frequencies by the tensor `ROPE_FACTORS`
    longrope : whether it scales by `LONG_FACTORS` and `SHORT_FACTORS`
    named_longrope : whether files also name that scaling in metadata
    unreadable : why llama.cpp cannot read a network of this family, empty if it can
    differences : differences or crashes of llama.cpp with a file of a network
    values, metadata : functions that read and write values specific to the family
    """

    architecture: str
    model_type: str
    auto_class: str
    inner: Mapping[str, str] = dataclasses.field(default_factory=lambda: PRE_NORM_LAYER)
    outer: Mapping[str, str] = dataclasses.field(default_factory=lambda: OUTER)
    stack: str | tuple[str, ...] = "model.layers"
    split: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    renamed: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    epsilon: str = "rms_norm_eps"
    rms: bool | None = None
    interleaved: bool = False
    biases: frozenset[str] = frozenset()
    singles: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    fold: Fold | None = None
    attends: bool = True
    mixed: bool = False
    partial: bool = False
    head: Literal["shared", "own", "either"] = "either"
    factors: bool = False
    longrope: bool = False
    named_longrope: bool = True
    unreadable: Callable[[Network], str] = _always_readable
    differences: Callable[[Network], list[str]] = _no_differences
    values: ReadValues = _no_values
    metadata: WriteValues = _no_values

    @property
    def epsilon_key(self) -> str:
        """Metadata key of the norms' epsilon."""
        rms = "rms" in self.epsilon if self.rms is None else self.rms
        return "attention.layer_norm_rms_epsilon" if rms else "attention.layer_norm_epsilon"

    def is_float32_tensor(self, name: str) -> bool:
        """Whether a tensor of the file is always float32."""
        return name in self.singles or re.sub(r"blk\.\d+\.", "", name) in self.singles

    def name(self, source: str, part: str = "") -> str:
        """Name in a GGUF file of a tensor with a Hugging Face name.

        Parameters
        ----------
        part : last part of the name of the parameter that is read from it, used for `split`

        Raises
        ------
        UnsupportedError
            The tensor has no GGUF name, or the name is unknown here.
        """
        stacks = (self.stack,) if isinstance(self.stack, str) else self.stack
        start = "|".join(map(re.escape, stacks))
        match = re.fullmatch(rf"(?:{start})\.(\d+)\.(.+?)(?:[._](weight|bias))?", _NUMBER.sub("", source))
        own = None if match is None else self.split.get(match[2], {}).get(part) or self.inner.get(match[2])
        if match is not None and own is not None:
            return f"blk.{match[1]}.{own}" + ("" if own in self.bare else f".{match[3] or 'weight'}")
        stem, _, kind = source.rpartition(".")
        if stem not in self.outer:
            raise UnsupportedError(
                f"tensor {source!r} has no name in GGUF files of the family {self.model_type}",
                hint="use format native or hf",
            )
        return f"{self.outer[stem]}.{kind}"

    def rules(self, blueprint: ModelBlueprint) -> ModelBlueprint:
        """Return a blueprint whose rules refer to GGUF tensors."""
        counts = Counter(_NUMBER.sub("", rule.source) for rule in blueprint.rules)
        specs = blueprint.network.param_specs()
        rules = tuple(
            dataclasses.replace(
                self._rule(rule, blueprint.network), part=self._part(rule, specs[rule.key].shape[0], counts)
            )
            for rule in blueprint.rules
        )
        # Tensors in the file that are not weights: rotary factors, read with the configuration.
        ignored = tuple(map(re.escape, (ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS)))
        return dataclasses.replace(blueprint, rules=rules, ignored=ignored, tied={}, prefix="")

    def _rule(self, rule: NameRule, network: Network) -> NameRule:
        where, _, name = rule.key.partition("/")
        spec = network.layers[Coord.parse(where)]
        return NameRule(
            key=rule.key,
            source=self.name(rule.source, _leaf(rule)),
            rows=rule.rows or _stored_rows(spec, name),
            interleaved_heads=_turning_heads(spec, name) if self.interleaved else rule.interleaved_heads,
            offset=_stored_more(spec, name),
            decay=name == "a_log" and spec.kind in ("mamba", "mamba2"),
        )

    def _part(self, rule: NameRule, rows: int, counts: Mapping[str, int]) -> FusedRows | None:
        """Rows of a tensor that form a parameter; `counts` has the experts of each name without number."""
        expert, part = _NUMBER.search(rule.source), rule.part
        if expert is not None:
            i = int(expert[1])
            return FusedRows(i * rows, (i + 1) * rows, stack=counts[_NUMBER.sub("", rule.source)])
        ends = (rf"\.{re.escape(name)}(?:[._].*)?$" for name in self.split)
        names = next((n for n, end in zip(self.split.values(), ends, strict=True) if re.search(end, rule.source)), None)
        if part is None or names is None:
            return part and FusedRows(part.start * part.heads, part.stop * part.heads, stack=part.stack)
        i = part.start // (rows * len(names))
        return FusedRows(i * rows, (i + 1) * rows, stack=part.stack)


def _leaf(rule: NameRule) -> str:
    """Last part of the name of a parameter: ``gate`` of ``2.0.0.1/7/gate.weight``."""
    return re.split(r"[/.]", rule.key)[-2]


def _turning_heads(spec: LayerSpec, name: str) -> int | None:
    """Number of heads of a query or key projection or their gains, None for parameters that RoPE does not affect."""
    if not isinstance(spec, MultiHeadAttention):
        return None
    heads = {"q": spec.num_heads, "k": spec.kv_heads}
    own = {f"{part}_norm": count for part, count in heads.items()} if spec.qk_norm_over == "each" else {}
    return {**heads, **own}.get(name.partition(".")[0])


def _stored_rows(spec: LayerSpec, name: str) -> int:
    """Rows of the matrix that is stored for a vector, 0 for tensors that are stored unchanged."""
    sizes = {"a_log": "num_heads", "d": "num_heads", "norm.weight": "groups"} if spec.kind == "mamba2" else {}
    return getattr(spec, sizes[name]) if name in sizes else 0


def _stored_more(spec: LayerSpec, name: str) -> float:
    """Offset of a stored gain from the parameter."""
    if isinstance(spec, MultiHeadAttention):
        return 1.0 if spec.qk_norm_unit_offset and name.partition(".")[0] in ("q_norm", "k_norm") else 0.0
    return 1.0 if getattr(spec, "unit_offset", False) and name == "weight" else 0.0


_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
}
"""Keys of other methods to choose and weight experts → values that disable them."""


def expert_values(metadata: Config, file: TensorSource, *, gatings: tuple[int, ...] = (0, 1)) -> Mapping[str, Any]:
    """Number of experts, and of experts that a row uses.

    Parameters
    ----------
    gatings : llama.cpp's numbers of gating functions that mean the family's

    Raises
    ------
    CheckpointError
        A layer has no router with a row for each expert.
    UnsupportedError
        The file chooses or weights experts in another way.
    """
    for key, values in {**_PLAIN, "expert_gating_func": gatings}.items():
        metadata.require(key, *values)
    count, layers = metadata.integer("expert_count"), metadata.layers("block_count")
    routers = [entry.shape for name, entry in file.entries.items() if name.endswith(".ffn_gate_inp.weight")]
    if len(routers) != layers or any(shape[:1] != (count,) for shape in routers):
        raise CheckpointError(f"{metadata.where}: {layers} layers need a router of {count} experts each")
    return {"num_local_experts": count, "num_experts_per_tok": metadata.integer("expert_used_count")}


def expert_metadata(config: Config, network: Network) -> Mapping[str, Any]:
    """Inverse of `expert_values`, plus the width of a dense MLP, which files require even without dense layers."""
    gate = _gate(network)
    return {
        "expert_count": np.uint32(gate.out_features),
        "expert_used_count": np.uint32(gate.top_k or gate.out_features),
        "feed_forward_length": np.uint32(config.integer("intermediate_size")),
    }


def small_expert_metadata(config: Config, network: Network) -> Mapping[str, Any]:
    """Also write the width of an expert if it differs from that of a dense MLP."""
    width = np.uint32(config.integer("moe_intermediate_size"))
    return {**expert_metadata(config, network), "expert_feed_forward_length": width}


def _gate(network: Network) -> Gate:
    """Gate of the first mixture, with or without a shared expert."""
    layers = [spec for spec in network.layers.values() if isinstance(spec, Parallel)]
    every = [*layers, *(branch for spec in layers for branch in spec.branches if isinstance(branch, Parallel))]
    return next(spec.gate for spec in every if spec.gate is not None)
