"""Several LoRA adapters of a model: read by path and scale, and merged into its weights."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TypeAlias

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.dtypes import DType, Packed, Scheme, encode
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.peft import LoraAdapter, read_adapter
from volumetric.loaders.target_schemes import convert, target_schemes
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore

OneLora: TypeAlias = "str | os.PathLike[str] | tuple[str | os.PathLike[str], float]"
"""Directory of an adapter, ``PATH`` or ``PATH:SCALE``, or a pair of the path and its scale."""
Lora: TypeAlias = "OneLora | Sequence[OneLora]"
"""One adapter, or several."""


def parse_adapters(lora: Lora) -> list[tuple[str, float]]:
    """Return path and scale of each adapter.

    Raises
    ------
    SpecError
        `lora` is neither a path, nor a pair of path and scale, nor a list of these; or as `parse_adapter`.
    """
    one = _adapter(lora)
    if one is not None:
        return [one]
    several = list(lora) if isinstance(lora, (list, tuple)) else [lora]
    adapters: list[tuple[str, float]] = []
    for each in several:
        one = _adapter(each)
        if one is None:
            raise SpecError(
                f"lora={str(each)[:60]!r} ({type(each).__name__}) is not an adapter",
                hint="give a path, a pair (path, scale), or a list of these",
            )
        adapters.append(one)
    return adapters


def _adapter(item: object) -> tuple[str, float] | None:
    """Path and scale of one adapter, None for any other value."""
    if isinstance(item, (str, os.PathLike)):
        return parse_adapter(os.fspath(item)) if os.fspath(item) else None
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], Real) or isinstance(item[1], bool):
        return None
    path, scale = item
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        return None
    return os.fspath(path), _finite(float(scale), os.fspath(path))


def _finite(scale: float, path: str) -> float:
    if not math.isfinite(scale):
        raise SpecError(f"the scale of adapter {path} is {scale}", hint="give a number: 1 as trained, 0 disables it")
    return scale


def parse_adapter(text: str | Path) -> tuple[str, float]:
    """Split ``PATH`` or ``PATH:SCALE``; a directory whose name ends in ``:number`` is not split.

    Raises
    ------
    SpecError
        The scale is not finite.
    """
    path, colon, scale = str(text).rpartition(":")
    if not colon or Path(text).is_dir():
        return str(text), 1.0
    try:
        value = float(scale)
    except ValueError:
        return str(text), 1.0
    return path, _finite(value, path)


def read_adapters(lora: Lora, loaded: LoadedModel) -> tuple[LoadedModel, dict[str, LoraAdapter], dict[str, float]]:
    """Read adapters for a model; raises as `read_adapter`.

    Returns
    -------
    The model with the parameters that adapters replace, the adapters by name, and their scales
    """
    adapters: dict[str, LoraAdapter] = {}
    scales: dict[str, float] = {}
    replaced: dict[str, WeightStore] = {}
    for path, scale in parse_adapters(lora):
        adapter = read_adapter(path, loaded)
        name, number = adapter.name, 2
        while name in adapters:
            name, number = f"{adapter.name}-{number}", number + 1
        if adapter.replaced and scale != 1:
            raise UnsupportedError(f"{name} replaces whole modules, which cannot be scaled", hint="use it with scale 1")
        both = sorted(replaced.keys() & adapter.replaced.keys())
        if both:
            raise UnsupportedError(f"two adapters replace {both[0]}", hint="load one of them")
        replaced |= {key: WeightStore.from_array(value) for key, value in adapter.replaced.items()}
        adapters[name], scales[name] = adapter, scale
    params = Params({**loaded.params, **replaced})
    return dataclasses.replace(loaded, params=params), adapters, scales


def add_adapters(
    params: Params,
    adapters: Mapping[str, LoraAdapter],
    scales: Mapping[str, float],
    targets: Mapping[str, Scheme | None] | None = None,
) -> Params:
    """Return weights to which adapters are added on reading, tensor by tensor.

    ``W' = W + Σ scale · B A`` in float32, from the stored values of W; parameters that an adapter replaces must already
    be replaced in `params`.

    Parameters
    ----------
    adapters, scales : by name
    targets : scheme of each weight, rounded once, after the sum; None: its current scheme
    """
    stores: dict[str, WeightStore] = {}
    for key, store in params.items():
        target = (targets or {}).get(key) or store.scheme
        parts = [(scales[n], *a.factors[key]) for n, a in adapters.items() if key in a.factors and scales[n]]
        if parts:
            stores[key] = _add_to_store(store, parts, target)
        elif target != store.scheme:
            stores[key] = store.transformed_by(target, lambda packed, target=target: convert(packed, target))
        else:
            stores[key] = store
    return Params(stores)


def _add_to_store(store: WeightStore, parts: Sequence[tuple[float, Array, Array]], target: Scheme) -> WeightStore:
    def read() -> Packed:
        values = store.values()
        for scale, down, up in parts:
            values += scale * (up @ down)
        return encode(values, target)

    return WeightStore(store.shape, target, read, release=store.release)


def merge_adapters(loaded: LoadedModel, lora: Lora, dtype: str | DType | Scheme | None = None) -> LoadedModel:
    """Return a model with adapters added to its weights.

    Parameters
    ----------
    loaded : model with weights in their stored scheme, so they are rounded once
    lora : one adapter or several, see `parse_adapters`
    dtype : scheme of the result; None: each weight keeps its scheme, so packed weights are rounded again

    Raises
    ------
    CheckpointError, UnsupportedError, SpecError
        As for `read_adapters`.
    DTypeError
        `dtype` is not a scheme.
    """
    targets = target_schemes(loaded.network, dtype)
    loaded, adapters, scales = read_adapters(lora, loaded)
    return dataclasses.replace(loaded, params=add_adapters(loaded.params, adapters, scales, targets))
