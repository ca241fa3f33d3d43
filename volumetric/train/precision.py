"""Quantisation-aware training: the forward pass uses quantised weights, gradients pass straight through to the master.

The straight-through estimator takes the derivative of rounding as 1 (Bengio et al. 2013, arXiv 1308.3432). So the
forward pass only needs other weights than the optimiser updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import SpecError
from volumetric.dtypes import DType, Scheme
from volumetric.network import Network
from volumetric.network.weight_store import Params, WeightStore

Precision: TypeAlias = "str | Scheme | DType | type[object] | Mapping[str, str | Scheme | DType] | None"
"""Storage of weights: None keeps every scheme; one scheme applies to all parameters that can be packed, with float32
for the others (gains and biases); a mapping goes from patterns of keys, as ``"*/q.weight"``, to schemes: the first
match applies, and unmatched parameters keep their schemes."""

FLOAT32 = Scheme.parse("float32")


def schemes_of(network: Network, params: Params, precision: Precision) -> dict[str, Scheme]:
    """Return the scheme in which each parameter is trained and stored.

    Raises
    ------
    SpecError
        A pattern matches no parameter.
    """
    if precision is None:
        return {key: params[key].scheme for key in params}
    specs = network.param_specs()
    if not isinstance(precision, Mapping):
        scheme = Scheme.parse(precision)
        return {key: scheme if spec.packable else FLOAT32 for key, spec in specs.items()}
    chosen = {pattern: Scheme.parse(scheme) for pattern, scheme in precision.items()}
    for pattern in chosen:
        matching_keys(pattern, specs)
    return {
        key: next((s for p, s in chosen.items() if fnmatchcase(key, p) and not spec.buffer), params[key].scheme)
        for key, spec in specs.items()
    }


def matching_keys(pattern: str, keys: Mapping[str, object]) -> set[str]:
    """Return the keys that `pattern` matches; raise `SpecError` if none match."""
    matched = {key for key in keys if fnmatchcase(key, pattern)}
    if not matched:
        raise SpecError(f"no parameter matches {pattern!r}", hint=f"keys look like {next(iter(keys), 'none')!r}")
    return matched


def trained_store(master: Array, scheme: Scheme) -> WeightStore:
    """Return a weight stored in `scheme` that keeps `master` as its float32 master."""
    store = WeightStore.from_array(np.array(master, np.float32))
    if scheme != store.scheme:
        store.master()
        store.morph(scheme)
    return store


def master_of(store: WeightStore) -> F32Array:
    """Return a weight's float32 master if it has one, else its values, without storing them."""
    return store.master() if store.has_master else store.values()
