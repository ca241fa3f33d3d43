"""Limits of GGUF files: refuse to write a model that readers would interpret differently.

A GGUF file contains an architecture and some numbers; all else, such as the activation of the MLP, is in the reader's
code. Two checks follow. The first is a list of what llama.cpp's code expects for an architecture. In addition, the
network that this package would build from the metadata must equal the model's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Packed
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.layers.layer_spec import fields_of
from volumetric.loaders import archs
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_config import read_config
from volumetric.loaders.gguf_family import ROPE_FACTORS, GGUFFamily
from volumetric.loaders.gguf_rope import needs_only_factors, same_rotation
from volumetric.loaders.gguf_windows import attentions, without_idle_windows
from volumetric.loaders.gguf_write import GGUFTensorOut, Metadata
from volumetric.network import Network
from volumetric.network.grid import Coord

_HINT: Final = "use format native or hf"


def check_tensors(family: GGUFFamily, names: Collection[str], network: Network) -> None:
    """Raise `UnsupportedError` for tensors that llama.cpp cannot read in an architecture."""
    architecture = family.architecture
    for name in names:
        product, _, kind = name.split(".", 2)[-1].partition(".")
        if name.startswith("blk.") and kind == "bias" and product not in family.biases:
            raise UnsupportedError(
                f"GGUF files of architecture {architecture!r} have no bias {name!r}, but the model has one", hint=_HINT
            )
    if "output.weight" in names and family.head == "shared":
        raise UnsupportedError(
            f"GGUF files of architecture {architecture!r} have no separate head, but the model has one", hint=_HINT
        )
    if ROPE_FACTORS in names and not family.factors:
        raise UnsupportedError(
            f"GGUF files of architecture {architecture!r} cannot store the frequency scaling llama3", hint=_HINT
        )
    attention = next(iter(attentions(network)), None)
    if attention is not None:
        _check_attention(family, attention, network)


def _check_attention(family: GGUFFamily, attention: MultiHeadAttention, network: Network) -> None:
    """Raise `UnsupportedError` for attention that llama.cpp does not support in an architecture."""
    architecture = family.architecture
    scalings = ("none", "linear", "llama3", "yarn", *(["longrope"] if family.longrope else []))
    by_factors = family.factors and attention.rope is not None and needs_only_factors(attention.rope)
    reason = family.unreadable(network)
    if reason:
        raise UnsupportedError(reason, hint=_HINT)
    if attention.rope is not None and attention.rope.scaling not in scalings and not by_factors:
        raise UnsupportedError(
            f"GGUF files of architecture {architecture!r} cannot store the rotary scaling {attention.rope.scaling!r}",
            hint=_HINT,
        )


def check_network(network: Network, metadata: Metadata, tensors: Mapping[str, GGUFTensorOut]) -> None:
    """Raise `UnsupportedError` unless a file with these metadata and tensors is read as `network`."""

    def packed(name: str) -> Packed:
        return Packed.from_array(tensors[name].read())

    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in metadata.items()}
    file = SimpleNamespace(metadata=plain, entries=tensors, packed=packed)
    blueprint = archs.build(read_config(cast("GGUFSource", file), "the file to be written"))
    read = without_idle_windows(blueprint.network, blueprint.context_length)
    for coord, spec in network.layers.items():
        other = read.layers.get(coord)
        if other is None or other.kind != spec.kind:
            raise UnsupportedError(f"GGUF has no form for the {spec.kind} at {coord}", hint=_HINT)
        _check_layer(coord, spec, other, str(metadata["general.architecture"]))
    if read.layers.keys() != network.layers.keys() or read.links != network.links:
        raise UnsupportedError("GGUF has no form for the order of the layers", hint=_HINT)


def _check_layer(coord: Coord, spec: LayerSpec, read: LayerSpec, architecture: str) -> None:
    """Raise `UnsupportedError` for the first field of a layer that readers would read differently."""
    for name, value in fields_of(spec).items():
        read_value = getattr(read, name)
        if isinstance(value, Rope) and isinstance(read_value, Rope) and same_rotation(value, read_value):
            continue  # another form of the same, such as factors of frequencies
        different = _difference(name, value, read_value)
        if different is None:
            continue
        field, ours, theirs = different
        if field in ("window", "chunk") and isinstance(ours, int):
            raise UnsupportedError(
                f"the model attends within a {field} of {ours} tokens at {coord}, but readers of GGUF files of "
                f"architecture {architecture!r} use {'none' if theirs is None else theirs}",
                hint=f"--context {ours} writes a file for contexts that it covers; {_HINT}",
            )
        raise UnsupportedError(
            f"GGUF files of architecture {architecture!r} cannot store that {spec.kind} at {coord} has "
            f"{field}={_field_text(ours)}: readers use {_field_text(theirs)}",
            hint=_HINT,
        )


def _field_text(value: Any) -> str:
    return "a rotation" if isinstance(value, Rope) else repr(value)


def _difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any] | None:
    """Path and values of the first field in which two values differ, None if they are equal."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        pairs = ((f.name, getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(other))
        differences = (_difference(f"{name}.{field}", ours, theirs) for field, ours, theirs in pairs)
        return next((each for each in differences if each is not None), None)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        differences = (_difference(f"{name}[{i}]", ours, theirs) for i, (ours, theirs) in pairs)
        return next((each for each in differences if each is not None), None)
    return None if _equal_in_float32(one, other) else (name, one, other)


def _equal_in_float32(one: Any, other: Any) -> bool:
    """Whether values are equal up to GGUF's float32 rounding, also for a quotient of two numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2**-22)
    return one == other


_BETA_FAST, _BETA_SLOW = 32.0, 1.0


def check_differences(family: GGUFFamily, network: Network) -> None:
    """Raise `UnsupportedError` if llama.cpp would compute different results from a file of this network, or crash."""
    differences = _differences(family, network)
    if differences:
        raise UnsupportedError(
            f"llama.cpp would not compute this model from a GGUF file: {'; '.join(differences)}",
            hint="--allow-differences (allow_differences=True) writes it anyway: this package reads the file correctly",
        )


def _differences(family: GGUFFamily, network: Network) -> list[str]:
    layers, differences = attentions(network), family.differences(network)
    ramps = [spec.rope for spec in layers if spec.rope is not None and spec.rope.scaling == "yarn"]
    if any(_turns_otherwise(rope, truncate=True) for rope in ramps):
        differences.append("it rounds the ends of yarn's ramp to whole pairs, but the model does not (truncate: false)")
    if any(_turns_otherwise(rope, beta_fast=_BETA_FAST, beta_slow=_BETA_SLOW) for rope in ramps):
        differences.append(
            f"it computes yarn with beta_fast {_BETA_FAST:g} and beta_slow {_BETA_SLOW:g}, whatever a file says"
        )
    return differences


def _turns_otherwise(rope: Rope, **fields: Any) -> bool:
    """Whether other values of these fields change a frequency."""
    return not np.array_equal(inverse_frequencies(rope), inverse_frequencies(replace(rope, **fields)))
