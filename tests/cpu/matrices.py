"""Matrices in all native schemes and their panels, for the tests of the CPU kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from volumetric.base._typing import F32Array
from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.panels import FORMATS, ROUNDINGS, PanelFormat, Rounding, prepared_bytes
from volumetric.devices.cpu.kernels.prepare import prepare_activations
from volumetric.devices.cpu.resident_weights import write_panels
from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, Packed, Scheme, decode, encode

CODED_SCHEMES = (
    "uint8:g32",
    "int2:g32",
    "uint2:g32",
    "int8:g32:float32",
    "int4:g32:float32",
    "float8_e4m3fn:g32",
    "float8_e5m2:g32",
)
"""Those that the kernels of block formats read."""
SCHEMES = tuple(text for text in FORMATS if text not in (*BLOCK_FORMATS, *OWN_FORMATS, *CODED_SCHEMES))
INTEGER_SCHEMES = tuple(text for text in SCHEMES if FORMATS[text].is_integer)
FLOAT_SCHEMES = tuple(text for text in SCHEMES if text not in INTEGER_SCHEMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """One matrix as panels, and the values it stands for."""

    form: PanelFormat
    packed: Packed
    values: F32Array  # [rows, k]
    memory: np.ndarray
    k: int

    @property
    def address(self) -> int:
        return address_of(self.memory)

    @property
    def panel_bytes(self) -> int:
        return self.form.panel_bytes(self.k)

    @property
    def panels(self) -> int:
        return -(-len(self.values) // 16)

    @property
    def units(self) -> int:
        return self.form.units(self.k)


def panels(scheme: str, rows: int, k: int, rng: np.random.Generator) -> Panels:
    """A random matrix of that scheme, re-tiled."""
    return panels_of(scheme, rng.standard_normal((rows, k)).astype(np.float32))


def panels_of(scheme: str, values: F32Array, *, threads: int = 1) -> Panels:
    """These values in that scheme, re-tiled."""
    return panels_from(encode(values, Scheme.parse(scheme)), threads=threads)


def panels_from(packed: Packed, *, threads: int = 1) -> Panels:
    """A stored matrix, re-tiled."""
    (rows, k), form = packed.shape, FORMATS[str(packed.scheme)]
    memory = aligned_zeros(-(-rows // 16) * form.panel_bytes(k))
    with ThreadPoolExecutor(threads) as pool:
        write_panels(packed, form, address_of(memory), form.panel_bytes(k), pool, threads)
    return Panels(form=form, packed=packed, values=decode(packed, np.float32), memory=memory, k=k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Rows made ready for a product, and the values that the product must see."""

    memory: np.ndarray
    row_bytes: int
    values: F32Array

    @property
    def address(self) -> int:
        return address_of(self.memory)


def activations(x: F32Array, rounding: Rounding) -> Activations:
    """Prepare the rows of `x` as a product step does."""
    rows, k = x.shape
    padded = np.zeros((rows, -(-k // 64) * 64), np.float32)
    padded[:, :k] = x
    row_bytes = prepared_bytes(k, rounding)
    memory, room = aligned_zeros(rows * row_bytes), np.zeros_like(padded[0])
    for i in range(rows):
        out = address_of(memory) + i * row_bytes
        number = ROUNDINGS.index(rounding)
        prepare_activations(address_of(padded[i]), out, address_of(room), k, number, 0, np.float32(0), 0, 0)
    values = x
    if rounding == "int8":
        values = rounded(padded)[:, :k]
    elif rounding == "bfloat16":
        values = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    return Activations(memory=memory, row_bytes=row_bytes, values=values)


def rounded(x: F32Array) -> F32Array:
    """`x` after quantisation to int8 in blocks of 32, in plain NumPy."""
    blocks = x.reshape(len(x), -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(scale > 0, np.rint(blocks * (np.float32(1) / scale)), 0)
    return (codes * scale).reshape(x.shape).astype(np.float32)
