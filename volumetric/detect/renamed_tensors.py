"""Checkpoints with other names: Meta's and Mistral's names of a Llama's tensors, and names with a common prefix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.name_rules import halves_from_pairs
from volumetric.loaders.tensor_source import TensorEntry, TensorSource

_MOST: Final = 4
"""Maximum number of parts of a prefix that are dropped."""
_META: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"tok_embeddings\.weight", "model.embed_tokens.weight"),
        (r"norm\.weight", "model.norm.weight"),
        (r"output\.weight", "lm_head.weight"),
        (r"rope\.freqs", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        (r"layers\.(\d+)\.attention\.w([qkvo])\.(weight|bias)", r"model.layers.\1.self_attn.\2_proj.\3"),
        (r"layers\.(\d+)\.attention_norm\.weight", r"model.layers.\1.input_layernorm.weight"),
        (r"layers\.(\d+)\.ffn_norm\.weight", r"model.layers.\1.post_attention_layernorm.weight"),
        (r"layers\.(\d+)\.feed_forward\.w1\.weight", r"model.layers.\1.mlp.gate_proj.weight"),
        (r"layers\.(\d+)\.feed_forward\.w2\.weight", r"model.layers.\1.mlp.down_proj.weight"),
        (r"layers\.(\d+)\.feed_forward\.w3\.weight", r"model.layers.\1.mlp.up_proj.weight"),
        (
            r"layers\.(\d+)\.feed_forward\.((?:gate|experts\.\d+\.w[123])\.weight)",
            r"model.layers.\1.block_sparse_moe.\2",
        ),
    )
)
"""Names in Meta's reference code (github.com/meta-llama/llama, model.py) and consolidated.safetensors → ours."""
_TURNED: Final = re.compile(r".*\.self_attn\.([qk])_proj\.(?:weight|bias)")
_LLAMA_CPP: Final = re.compile(r"blk\.\d+\.\w+\.(?:weight|bias)")


class RenamedSource:
    """A checkpoint whose tensors have other names.

    Parameters
    ----------
    names : new name → name in the file
    how : readable description of the change
    heads : number of heads of ``"q"`` and ``"k"``, whose rows rotate in neighbouring pairs; they are reordered to
        halves
    """

    def __init__(
        self, source: TensorSource, names: Mapping[str, str], how: str = "", heads: Mapping[str, int] | None = None
    ) -> None:
        self._source = source
        self._names = names
        self.how: str = how
        self._heads = heads or {}
        self.entries: dict[str, TensorEntry] = {
            name: dataclasses.replace(source.entries[old], name=name) for name, old in names.items()
        }

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of one tensor."""
        return self._source.scheme(self._names[name])

    def packed(self, name: str) -> Packed:
        """Read one tensor."""
        packed = self._source.packed(self._names[name])
        match = _TURNED.fullmatch(name)
        if match is None or match[1] not in self._heads:
            return packed
        order = halves_from_pairs(packed.shape[0], self._heads[match[1]])
        if len(packed.shape) == 1:
            return Packed.from_array(packed.codes().reshape(-1)[order])
        return packed.take_rows(order)

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read some rows of one tensor."""
        if self._heads and _TURNED.fullmatch(name):
            return self.packed(name).slice_rows(start, stop)
        return self._source.packed_rows(self._names[name], start, stop)

    def release(self, name: str) -> None:
        """Drop the mapped pages of one tensor."""
        self._source.release(self._names[name])

    def with_rotary_halves(self, values: Mapping[str, Any]) -> TensorSource:
        """Return the checkpoint with query and key rows in our order, by the heads of a configuration."""
        if self.how != _META_NAMES:
            return self
        heads = values["num_attention_heads"]
        return RenamedSource(
            self._source, self._names, self.how, {"q": heads, "k": values.get("num_key_value_heads") or heads}
        )


_META_NAMES: Final = "in Meta's names, whose queries and keys rotate in neighbouring pairs"


def alternative_sources(source: TensorSource) -> Iterator[TensorSource]:
    """Yield a checkpoint unchanged, with Hugging Face's names instead of Meta's, and without a common prefix."""
    yield source
    if "tok_embeddings.weight" in source.entries and any(".attention.wq." in name for name in source.entries):
        names = {_name_of_meta(name): name for name in source.entries}
        if len(names) == len(source.entries):
            yield RenamedSource(source, names, _META_NAMES)
        return
    prefix = ""
    for _ in range(_MOST):
        firsts = {name.removeprefix(prefix).partition(".")[0] for name in source.entries}
        if len(firsts) != 1 or next(iter(firsts)).isdigit():
            return
        prefix += f"{firsts.pop()}."
        if not all(name.startswith(prefix) and name != prefix for name in source.entries):
            return
        yield RenamedSource(
            source, {name.removeprefix(prefix): name for name in source.entries}, f"with the prefix {prefix[:-1]}"
        )


def _name_of_meta(name: str) -> str:
    matches = ((pattern.fullmatch(name), target) for pattern, target in _META)
    return next((match.expand(target) for match, target in matches if match), name)


def is_llama_cpp(source: TensorSource) -> bool:
    """Whether tensors have the names of GGUF files."""
    return any(_LLAMA_CPP.fullmatch(name) for name in source.entries)
