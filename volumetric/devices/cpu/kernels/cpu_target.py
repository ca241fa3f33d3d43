"""Instruction set of generated code, which selects the form of every micro-kernel.

An intrinsic for an instruction that the code generator's target lacks aborts the process, without a Python exception.
The features are therefore read from the same place as by Numba's code generator (``NUMBA_CPU_NAME`` and
``NUMBA_CPU_FEATURES`` override the host), and a feature counts only if it is certain.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import llvmlite.binding as llvm
from numba.core import codegen
from numba.core import config as _config

_V2 = frozenset({"sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _V4 | {"avx512vnni"}
_DOTPROD = frozenset({"neon", "dotprod"})

_IMPLIED: dict[str, frozenset[str]] = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    **dict.fromkeys(("haswell", "broadwell", "skylake", "znver1", "znver2", "znver3"), _V3),
    **dict.fromkeys(("skylake-avx512", "skx"), _V4),
    **dict.fromkeys(("cascadelake", "icelake-client", "icelake-server", "tigerlake", "rocketlake"), _VNNI),
    **dict.fromkeys(("cooperlake", "sapphirerapids", "znver4", "znver5"), _VNNI | {"avx512bf16"}),
    **dict.fromkeys(("apple-m1", "apple-m2", "apple-m3", "apple-m4"), _DOTPROD),
    **dict.fromkeys(("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"), _DOTPROD),
    **dict.fromkeys(("cortex-a76", "cortex-a78", "cortex-x1", "cortex-x2"), _DOTPROD),
}

Dot = Literal["vnni512", "vnni256", "avx2", "neon", "generic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget:
    """Facts about the instruction set for micro-kernels.

    Attributes
    ----------
    features : every feature that generated code may use
    dot : instructions for sums of four products of bytes
    half : the machine converts between float16 and float32
    registers : vector registers of 16 float32 lanes that a kernel can keep without spilling
    """

    features: frozenset[str]
    dot: Dot
    half: bool
    registers: int

    @property
    def description(self) -> str:
        """Text about the instruction set, for printing."""
        names = {
            "vnni512": "AVX-512 VNNI",
            "vnni256": "AVX-VNNI",
            "avx2": "AVX2",
            "neon": "NEON dot products",
            "generic": "generic vectors",
        }
        widest = "AVX-512 " if "avx512f" in self.features and self.dot == "avx2" else ""
        return widest + names[self.dot]


@cache
def target() -> CpuTarget:
    """The target of this process."""
    config: Any = _config  # its attributes are built at run time
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    text = config.CPU_FEATURES if config.CPU_FEATURES is not None else codegen.get_host_cpu_features()
    return describe(resolve_features(str(name), str(text)), platform.machine().lower())


def resolve_features(name: str, text: str) -> frozenset[str]:
    """Features of CPU `name` changed by ``"+avx2,-avx512f"``-like `text`."""
    features = set(_IMPLIED.get(name.lower(), frozenset()))
    for item in filter(None, (item.strip() for item in text.split(","))):
        if item[0] == "-":
            features.discard(item[1:])
        else:
            features.add(item.removeprefix("+"))
    return frozenset(_without_orphans(features))


def _without_orphans(features: set[str]) -> set[str]:
    """Drop features that the code generator drops along with a disabled one."""
    if "avx" not in features:
        features -= {"avx2", "fma", "f16c", "avxvnni"}
    if not {"avx2", "fma", "f16c"} <= features:
        features = {name for name in features if not name.startswith("avx512")}
    if "avx512f" not in features:
        features = {name for name in features if not name.startswith("avx512")}
    if "avx2" not in features:
        features.discard("avxvnni")
    if "avx512bw" not in features:
        features -= {"avx512bf16", "avx512vbmi"}
    return features


def describe(features: frozenset[str], machine: str) -> CpuTarget:
    """Choose the kernel forms for a machine (`platform.machine()` in lower case) with `features`."""
    if machine in {"arm64", "aarch64"}:
        # 32 registers of 4 lanes.
        return CpuTarget(features=features, dot="neon" if "dotprod" in features else "generic", half=True, registers=8)
    dot: Dot = "generic"
    if "avx2" in features:
        dot = "avx2"
    if "avxvnni" in features:
        dot = "vnni256"
    if {"avx512bw", "avx512vl", "avx512vnni"} <= features:
        dot = "vnni512"
    # A vector of 16 lanes is one zmm register of 32, two ymm of 16, or four xmm of 16.
    registers = 32 if "avx512f" in features else 8 if "avx" in features else 4
    return CpuTarget(features=features, dot=dot, half="f16c" in features, registers=registers)
