"""Regroups weights for a device: groups of 64, 128 or whole rows become groups of 32 if those are native.

The values are the same. A 16-bit scale for each 32 codes takes half a bit per weight, so a matrix in ``int4:g128``
takes 4.5 bits on the device instead of 4.125; dequantising it would take 32.
"""

from __future__ import annotations

from collections.abc import Collection

from volumetric.dtypes.scaled_rows import narrower_scheme, repeat_scales
from volumetric.network.weight_store import Params, WeightStore


def regroup_params(params: Params, native: Collection[str]) -> Params:
    """Return `params` with tensors converted to a scheme in `native` if repeating their scales gives that scheme."""
    return Params({key: _store(store, native) for key, store in params.items()})


def _store(store: WeightStore, native: Collection[str]) -> WeightStore:
    scheme = narrower_scheme(store.scheme, native)
    return store if scheme is None else store.transformed_by(scheme, lambda packed: repeat_scales(packed, scheme))
