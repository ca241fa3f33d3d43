"""The devices that tests of several areas share: opened once, so that kernels and pipelines are compiled once."""

from __future__ import annotations

from functools import cache
from typing import Any

from volumetric.runtime.open import open_device
from volumetric.runtime.reference import ReferenceDevice

FAST = ("cpu", "gpu")
"""Devices with kernels of their own."""
DEVICES = ("reference", *FAST)


@cache
def device(name: str) -> Any:
    """An open device: its type depends on the name."""
    return ReferenceDevice() if name == "reference" else open_device(name, threads=2)


@cache
def graphs(name: str) -> Any:
    """What compiles tensor graphs on a device."""
    return device(name).graphs()
