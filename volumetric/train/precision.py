"""Quantisation-aware training: forward with the weights that will be stored, gradients straight through to the master.

The straight-through estimator takes the derivative of rounding for 1 (Bengio et al. 2013, arXiv 1308.3432), so the only
thing to do is to hand the forward pass other weights than those that the optimiser updates.
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
from volumetric.network.weights import Params, WeightStore

Precision: TypeAlias = "str | Scheme | DType | Mapping[str, str | Scheme | DType] | None"
"""How weights are stored: None keeps every scheme as it is; one scheme goes to all parameters that can be packed, and
float32 to the others (gains and biases); a mapping goes from patterns of keys, as ``"*/q.weight"``, to schemes: the
first that matches counts, and the rest stays as it is."""

FLOAT32 = Scheme.parse("float32")


def schemes_of(network: Network, params: Params, precision: Precision) -> dict[str, Scheme]:
    """Return the scheme in which each parameter is to be trained and stored.

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
        matching(pattern, specs)
    return {
        key: next((s for p, s in chosen.items() if fnmatchcase(key, p) and not spec.buffer), params[key].scheme)
        for key, spec in specs.items()
    }


def matching(pattern: str, keys: Mapping[str, object]) -> set[str]:
    """Return the keys that `pattern` matches; raise `SpecError` if there are none."""
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
    """Return a weight's float32 master where one is kept, else its values, without keeping them in the store."""
    return store.master() if store.has_master else store.values()
