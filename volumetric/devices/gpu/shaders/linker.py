"""Link shader files into one WGSL module by concatenation.

The order is: constants, `std`, `maths`, one `reduce_*`, the preludes (weight format, activation, cache storage, …),
the kernel. Preludes that are formulas are written by `formulas`; the others are files, as kernels are. Each is complete
WGSL given the names that the earlier ones define; optional parts branch on constants, which the driver folds. There is
no template language: the only rewriting is `unroll`, and functions and workgroup memory that the kernel does not reach
are left out.

A kernel that declares ``struct Args`` gets ``args`` as immediate data, or as a uniform buffer at binding 15 where the
device has no immediates. `std` declares the uniform ``ctl`` at binding 14.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.shaders.declarations import needed
from volumetric.devices.gpu.shaders.formulas import FOLDERS, prelude
from volumetric.devices.gpu.shaders.unroll import constant_value, unroll

ARGS_BINDING = 15
_PACKAGE = "volumetric.devices.gpu.shaders"

_BINDING = re.compile(r"@group\(0\)\s*@binding\((\d+)\)\s*var<(storage|uniform)(?:,\s*(read_write|read))?>\s*(\w+)\s*:")
_COMMENT = re.compile(r"//(?!@(?:unroll|rounds)).*$", re.MULTILINE)
_ARGS = re.compile(r"\bstruct\s+Args\s*\{([^}]*)\}")
_WORKGROUP = re.compile(r"\bvar<workgroup>\s+(\w+)\s*:\s*(?:array<([\w<>]+),\s*([^;]+)>|([\w<>]+))\s*;")
_SCALAR_BYTES = {
    "f32": 4, "u32": 4, "i32": 4, "atomic<u32>": 4, "vec2<f32>": 8, "vec2<u32>": 8, "vec4<f32>": 16, "vec4<u32>": 16,
}  # fmt: skip
_SUBGROUPS = re.compile(r"\bsubgroup[A-Z]\w*\s*\(|@builtin\(subgroup_")
_DERIVED = re.compile(r"^const\s+(\w+)\s*:\s*u32\s*=\s*([^;]+);", re.MULTILINE)

Access = Literal["read", "read_write", "uniform"]
Dialect = Literal["naga", "tint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the linked text may use.

    Attributes
    ----------
    subgroup_size : lanes that are certain to run together (the smallest subgroup size), 0 to reduce through memory
    immediates : `args` is immediate data instead of a uniform buffer
    dialect : whose WGSL: ``"tint"`` (browsers built on Dawn) wants extensions enabled by name, as the standard has it;
        ``"naga"`` (wgpu) refuses a module that does so
    """

    subgroup_size: int = 0
    immediates: bool = False
    dialect: Dialect = "naga"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One resource that a module declares."""

    index: int
    name: str
    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A module ready to compile.

    Attributes
    ----------
    args_bytes : size of ``struct Args``, 0 when the kernel has none
    workgroup_bytes : workgroup memory; wgpu does not hold it against the device's limit
    """

    name: str
    text: str
    bindings: tuple[Binding, ...]
    args_bytes: int
    workgroup_bytes: int


def available(folder: str = "") -> tuple[str, ...]:
    """Names of the preludes in `folder` (``""`` for kernels and shared text, ``"dtype"``, ``"unary"``, …), sorted."""
    if folder in FOLDERS:
        return tuple(sorted(FOLDERS[folder][0]))
    place = resources.files(_PACKAGE) / folder if folder else resources.files(_PACKAGE)
    return tuple(sorted(f.name.removesuffix(".wgsl") for f in place.iterdir() if f.name.endswith(".wgsl")))


def link(
    kernel: str, *, constants: Mapping[str, int | float | bool], preludes: tuple[str, ...] = (), target: Target
) -> Linked:
    """Join `kernel` with its preludes (``"dtype/int4_g32"``, ``"unary/silu"``, …) for `target`.

    Raises
    ------
    SpecError : no such file, a constant that WGSL cannot hold, or an ill-formed ``//@unroll``
    """
    reduce = "reduce_subgroup" if target.subgroup_size else "reduce_workgroup"
    defined = {**constants, "SUBGROUP": target.subgroup_size}
    known = dict(defined)
    pieces = [read(name) for name in ("std", "maths", reduce, *preludes, kernel)]
    body = needed("\n".join(pieces))
    for name, expression in _DERIVED.findall(body):
        value = constant_value(expression, known)
        if value is not None:
            known[name] = value
    used = re.sub(r"\s+\n", "\n", unroll(body, known))
    args = _ARGS.search(used)
    declared = _declare_args(present=args is not None, immediates=target.immediates)
    header = "\n".join(_constant(name, value) for name, value in defined.items())
    enabled = "enable subgroups;\n" if target.dialect == "tint" and _SUBGROUPS.search(used) else ""
    text = f"{enabled}{header}\n{declared}{used}\n"
    return Linked(
        name=kernel,
        text=text,
        bindings=_bindings(text),
        args_bytes=0 if args is None else 4 * len([f for f in args.group(1).split(",") if f.strip()]),
        workgroup_bytes=_workgroup_bytes(used, known),
    )


def _workgroup_bytes(text: str, known: Mapping[str, int | float | bool]) -> int:
    """Bytes of all workgroup variables.

    Raises
    ------
    SpecError : a type or a length that this function cannot tell
    """
    total = 0
    for name, element, length, scalar in _WORKGROUP.findall(text):
        count = constant_value(length, known) if length else 1
        size = _SCALAR_BYTES.get(element or scalar)
        if count is None or size is None:
            raise SpecError(f"the size of the workgroup variable {name} is not known")
        total += count * size
    return total


def _declare_args(*, present: bool, immediates: bool) -> str:
    if not present:
        return ""
    if immediates:
        return "var<immediate> args: Args;\n"
    return f"@group(0) @binding({ARGS_BINDING}) var<uniform> args: Args;\n"


def _bindings(text: str) -> tuple[Binding, ...]:
    bindings = []
    for index, space, access, name in _BINDING.findall(text):
        if name == "ctl" and not re.search(r"\bctl\.", text):
            continue
        kind: Access = "uniform" if space == "uniform" else ("read_write" if access == "read_write" else "read")
        bindings.append(Binding(index=int(index), name=name, access=kind))
    return tuple(sorted(bindings, key=lambda binding: binding.index))


def _constant(name: str, value: int | float | bool) -> str:
    if isinstance(value, bool):
        return f"const {name}: bool = {str(value).lower()};"
    if isinstance(value, int):
        if not 0 <= value < 2**32:
            raise SpecError(f"shader constant {name} = {value} does not fit u32")
        return f"const {name}: u32 = {value}u;"
    if not math.isfinite(value):
        raise SpecError(f"shader constant {name} = {value} is not finite")
    return f"const {name}: f32 = {float(value)!r}f;"


@cache
def read(name: str) -> str:
    """Return the text of a shader file without its comments; a brace or binding in one must not be taken for code.

    What is a formula has no file, but is written from it (`formulas`). ``package:name`` is a file of that package.

    Raises
    ------
    SpecError : no such file
    """
    folder, _, last = name.rpartition("/")
    if folder in FOLDERS:
        return prelude(folder, last)
    package, _, path = name.rpartition(":")
    file = resources.files(package or _PACKAGE) / f"{path}.wgsl"
    if not file.is_file():
        hint = f"{package} has no {path}.wgsl" if package else f"there are: {', '.join(available(folder))}"
        raise SpecError(f"no shader file {name!r}", hint=hint)
    return _COMMENT.sub("", file.read_text(encoding="utf-8"))
