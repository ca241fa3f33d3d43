"""Write a model as a GGUF file that llama.cpp reads: its names, row order, block formats and tokenizer keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.dtypes import Packed, Scheme, scaled_rows, to_gguf
from volumetric.loaders import archs
from volumetric.loaders.gguf_config import damage_metadata
from volumetric.loaders.gguf_family import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS, GGUFFamily
from volumetric.loaders.gguf_fold import encoder_in_gguf, fold_factors
from volumetric.loaders.gguf_limits import check_differences, check_network, check_tensors
from volumetric.loaders.gguf_metadata import gguf_metadata, main_rope
from volumetric.loaders.gguf_rope import needs_only_factors, rope_factors
from volumetric.loaders.gguf_sentences import sentence_metadata
from volumetric.loaders.gguf_tokenizer import PREFIX
from volumetric.loaders.gguf_tokenizer_export import generation_metadata, length_metadata, tokenizer_metadata
from volumetric.loaders.gguf_types import BLOCK_TYPES, GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_windows import without_idle_windows
from volumetric.loaders.gguf_write import GGUFTensorOut, Metadata, write_gguf
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_export import blueprint_of
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.name_rules import NameRule, add_offset, invert_decay, permute_rows, stacked_shape
from volumetric.loaders.target_schemes import convert
from volumetric.network import Network, Params
from volumetric.network.weight_store import WeightStore

# fmt: off
_FILE_TYPES: Final = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12, "Q4_K": 15,
    "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38,
}
# fmt: on
"""llama.cpp's numbers for "mostly of this type"; for types with several mixes, the medium one."""


def save_gguf(path: str | Path, model: LoadedModel, *, allow_differences: bool = False) -> None:
    """Write one GGUF file, with tokenizer and chat template if the model has them.

    Tensors in float16, bfloat16, float32, int8:g32, int4:g32, uint4:g32 and block formats keep their values exactly;
    all others, and rows that do not fill whole blocks, are written as float32; wider types are rounded to it. Gains and
    biases are float32, as llama.cpp requires.

    For an encoder, the part up to the hidden states and their pooling is written; a masked language model head is left
    out. RoBERTa becomes an equivalent BERT.

    If an embedding has more rows than tokens, the rest get unused tokens, as llama.cpp requires a token for each row. A
    window of at least the context has no effect and is left out. The factors of Falcon-H1, for which the files have no
    keys, are multiplied into the weights: into the scales of packed ones, which rounds the scales.

    Parameters
    ----------
    allow_differences : whether to write even if llama.cpp is known to compute different results, see `gguf_limits`

    Raises
    ------
    UnsupportedError
        The family, its rotary scaling, or the tokenizer has no GGUF form here; or GGUF cannot describe a part of the
        model, such as another activation than SiLU, a sliding window, or biases that llama.cpp does not support in the
        family; or llama.cpp would compute different results.
    CheckpointError
        The file cannot be written.
    """
    blueprint = blueprint_of(model)
    encodes = any(spec.two_way for spec in model.network.layers.values())
    if encodes:
        model, blueprint = encoder_in_gguf(model, blueprint)
    family = archs.gguf_family_of(Config(model.config, model.name))
    network, rules = fold_factors(model, blueprint, family)
    network = without_idle_windows(network, model.context_length)
    tensors: dict[str, GGUFTensorOut] = {}
    for name, factors in _rope_factors(network, family).items():
        tensors[name] = GGUFTensorOut(type="F32", shape=factors.shape, read=lambda factors=factors: factors)
    for name, parts in _rules_by_tensor(rules).items():
        tensors[name] = _tensor_out(parts, model.params, single=family.is_float32_tensor(name))
    blocks = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blk."))
    metadata: dict[str, Any] = {**gguf_metadata(model, network, family, blocks), **_file_type(tensors)}
    check_tensors(family, tensors, network)
    check_network(network, metadata, tensors)
    if not allow_differences:
        check_differences(family, network)
    rows = Config(model.config, model.name).integer("vocab_size")
    metadata |= damage_metadata(model.damage)
    metadata |= generation_metadata(model.generation, model.tokenizer) | tokenizer_metadata(model.tokenizer, rows)
    if encodes:
        metadata |= _encoder(model, family.architecture, types=tensors.get("token_types.weight"))
    if model.chat_template is not None:
        metadata["tokenizer.chat_template"] = model.chat_template.source
    write_gguf(path, metadata, tensors)


def gguf_tensors(model: LoadedModel) -> dict[str, tuple[str, ...]]:
    """Return the tensors that `save_gguf` would write, and the parameters that share each; raises as `save_gguf`.

    A parameter that is written to two tensors, with different factors, is listed for the first.
    """
    family = archs.gguf_family_of(Config(model.config, model.name))
    _, rules = fold_factors(model, blueprint_of(model), family)
    first = {rule.key: rule for rule in reversed(rules)}
    parts = _rules_by_tensor(rule for rule in rules if first[rule.key] is rule)
    return {name: tuple(rule.key for rule in own) for name, own in parts.items() if not family.is_float32_tensor(name)}


def _encoder(model: LoadedModel, architecture: str, types: GGUFTensorOut | None) -> Metadata:
    """Metadata that only encoders have; `types` has a row for each token type, if there are any."""
    sentences = model.sentences
    return {
        PREFIX + "token_type_count": np.uint32(1 if types is None else types.shape[0]),
        **length_metadata(model.tokenizer, sentences and sentences.max_length, model.context_length),
        **sentence_metadata(architecture, sentences),
    }


def gguf_scheme(scheme: Scheme, shape: Shape) -> Scheme:
    """Scheme in which a tensor is written: the stored one if GGUF supports it, else float32."""
    kind = scheme.gguf_type
    size = GGUF_TYPES[TYPE_NUMBERS[kind]].block if kind else 1
    fits = len(shape) > 1 and kind is not None and kind != "F64" and shape[-1] % size == 0
    return scheme if fits else Scheme.parse("float32")


def _rules_by_tensor(all_rules: Iterable[NameRule]) -> dict[str, list[NameRule]]:
    """Rules that fill each tensor, in the order of their parts."""
    tensors: dict[str, list[NameRule]] = {}
    for rule in all_rules:
        tensors.setdefault(rule.source, []).append(rule)
    for rules in tensors.values():
        rules.sort(key=lambda rule: rule.part.start if rule.part else 0)
    return tensors


def _tensor_out(rules: list[NameRule], params: Params, *, single: bool) -> GGUFTensorOut:
    """Build one tensor: a parameter, or several concatenated along their rows."""
    stores = [params[rule.key] for rule in rules]
    schemes = {gguf_scheme(store.scheme, store.shape) for store in stores}
    scheme = schemes.pop() if len(schemes) == 1 and not single else Scheme.parse("float32")
    kind = scheme.gguf_type or "F32"

    def read() -> Array:
        parts = [
            _bytes_of(_layout_for_gguf(rule, store, scheme), kind) for rule, store in zip(rules, stores, strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    def release() -> None:
        for store in stores:
            store.release()

    rows = sum(store.shape[0] for store in stores)
    # The kernel of a depthwise convolution is a matrix in GGUF.
    rest = stores[0].shape[1:] if len(stores[0].shape) < 3 else (stores[0].shape[2],)
    shape = stacked_shape(rules[0], (rows, *rest))
    return GGUFTensorOut(type=kind, shape=shape, read=read, done=release)


def _layout_for_gguf(rule: NameRule, store: WeightStore, scheme: Scheme) -> Packed:
    """A parameter in the scheme and row order of the file."""
    if rule.decay:
        return invert_decay(store.packed())
    packed = convert(store.packed(), scheme)
    if rule.factors:
        packed = scaled_rows(packed, rule.factors)
    if rule.interleaved_heads is not None:
        packed = permute_rows(packed, rule.interleaved_heads)
    return add_offset(packed, rule.offset) if rule.offset else packed


def _bytes_of(packed: Packed, kind: str) -> Array:
    return np.frombuffer(to_gguf(packed), np.uint8) if kind in BLOCK_TYPES else packed.codes()


def _rope_factors(network: Network, family: GGUFFamily) -> dict[str, Array]:
    """Frequency factors of RoPE, which GGUF stores as tensors: Llama 3.1's, or those of longrope."""
    rope = main_rope(network)
    if rope is None or rope.scaling not in ("llama3", "longrope"):
        return {}
    if rope.scaling == "llama3" or (family.factors and needs_only_factors(rope)):
        return {ROPE_FACTORS: rope_factors(rope)}
    factors = {LONG_FACTORS: rope.long_factors, SHORT_FACTORS: rope.short_factors}
    return {name: np.array(values, np.float32) for name, values in factors.items()}


def _file_type(tensors: Mapping[str, GGUFTensorOut]) -> Metadata:
    """Number of the type of most matrices."""
    kinds = [t.type for t in tensors.values() if len(t.shape) > 1]
    return {"general.file_type": np.uint32(_FILE_TYPES[max(_FILE_TYPES, key=kinds.count)])}
