"""Scales of wide groups written once for each narrower group: the same numbers in a scheme that kernels read."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

import numpy as np

from volumetric.dtypes.packed import Packed
from volumetric.dtypes.registry import parse_dtype
from volumetric.dtypes.scheme import Scheme

NARROW = 32
"""Numbers to a scale in all native schemes."""


def narrowed_scheme(scheme: Scheme, native: Container[str]) -> Scheme | None:
    """Return the scheme with groups of 32 that holds the same numbers, if it is one of `native`; else None.

    Scales of 16 bits may become float32 there, which holds them.

    Examples
    --------
    >>> narrowed_scheme(Scheme.parse("int4:g128"), {"int4:g32"})
    Scheme.parse('int4:g32')
    """
    if scheme.group is None or scheme.group % NARROW or str(scheme) in native:
        return None
    narrow = dataclasses.replace(scheme, group=NARROW)
    wide = dataclasses.replace(narrow, scale_dtype=parse_dtype("float32"))
    return next((each for each in (narrow, wide) if str(each) in native), None)


def narrowed(packed: Packed, scheme: Scheme) -> Packed:
    """Return the same codes with scales and offsets repeated for the groups of 32 of `scheme`."""
    groups = np.arange(scheme.groups_per_row(packed.k)) * NARROW // (packed.scheme.group or packed.k or 1)
    host = None if scheme.scale_dtype is None else scheme.scale_dtype.host
    return Packed(
        scheme=scheme,
        shape=packed.shape,
        payload=packed.payload,
        scales=None if packed.scales is None else packed.scales[:, groups].astype(host),
        offsets=None if packed.offsets is None else packed.offsets[:, groups].astype(host),
    )
