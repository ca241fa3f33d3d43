"""Probes of software: versions, extras, plug-ins, environment variables."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Final

from volumetric.cli.doctor_probe import Section

_DISTRIBUTION: Final = "volumetric-engine"
_NAME: Final = re.compile(r"[\w.-]+")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_GIVES: Final[Mapping[str, str]] = {
    "data": "the samples digits and iris",
    "serve": "the HTTP server, and grammars",
    "viz": "pictures as PNG, SVG and PDF",
    "rl": "environments of Gymnasium",
    "distributed": "evolution on a cluster with Dask",
    "dawn": "a second WebGPU implementation for GPUs, used where it is faster",
}
"""Extra → what it gives."""
_PREFIXES: Final = ("VOLUMETRIC_", "NUMBA_", "HF_", "WGPU_", "OMP_", "OPENBLAS_", "MKL_", "VK_", "LP_")
_VARIABLES: Final = ("XDG_CACHE_HOME", "TRANSFORMERS_OFFLINE", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "SSL_CERT_FILE")
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PROXY|CREDENTIAL", re.IGNORECASE)


def read_versions(section: Section) -> None:
    """Versions of Python, the engine and the packages that it needs."""
    from volumetric import __version__

    section.facts["volumetric"] = __version__
    section.facts["python"] = f"{platform.python_implementation()} {platform.python_version()}, {sys.platform}"
    section.facts["environment"] = sys.prefix if sys.prefix != sys.base_prefix else f"{sys.prefix} (no virtual one)"
    for name, wanted in _requirements():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            section.facts[name] = "missing"
            section.find("broken", f"{name} is not installed", f'pip install "{name}{wanted}"')
            continue
        section.facts[name] = version
        if not satisfies(version, wanted):
            section.find("broken", f"{name} is {version}, and {wanted} is needed", f'pip install "{name}{wanted}"')


def _requirements(extra: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, versions) of the packages that the engine, or one of its extras, needs."""
    for text in metadata.requires(_DISTRIBUTION) or ():
        requirement, _, marker = text.partition(";")
        of = _EXTRA.search(marker)
        name = _NAME.match(requirement.strip())
        if name is not None and (of[1] if of else "") == extra:
            yield name[0], requirement.strip()[name.end() :].partition("]")[2] or requirement.strip()[name.end() :]


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within bounds such as ``>=2.1,<3``; bounds of other forms count as met."""
    here = _numbers(version)
    for bound in wanted.replace(" ", "").split(","):
        sign, number = re.match(r"([<>=!~]*)(.*)", bound).groups()  # pyright: ignore[reportOptionalMemberAccess]  (matches anything)
        there = _numbers(number)
        if (sign == ">=" and here < there) or (sign == "<" and here >= there):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version as numbers, without zeros at the end."""
    numbers = [int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", version)[0])]  # pyright: ignore[reportOptionalSubscript]  (matches anything)
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def read_extras(section: Section) -> None:
    """Which extras are installed, and what the others would give."""
    for extra in sorted(metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or ()):
        missing = [name for name, _ in _requirements(extra) if not _is_installed(name)]
        gives = f": {_GIVES[extra]}" if extra in _GIVES else ""
        how = f'missing {", ".join(missing)}; pip install "{_DISTRIBUTION}[{extra}]"' if missing else "installed"
        section.facts[extra] = f"{how}{gives}"


def _is_installed(name: str) -> bool:
    if name == _DISTRIBUTION:
        return True
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def read_plugins(section: Section) -> None:
    """Entry points of other packages, each imported to see whether it works."""
    available = metadata.entry_points()
    for group in sorted(group for group in available.groups if group.startswith("volumetric.")):
        for point in sorted(available.select(group=group), key=lambda point: point.name):
            home = point.dist.name if point.dist is not None else "?"
            if home == _DISTRIBUTION:
                continue
            label = f"{group.removeprefix('volumetric.')} {point.name}"
            try:
                point.load()
            except BaseException as error:  # a module may call sys.exit
                if isinstance(error, KeyboardInterrupt):
                    raise
                reason = f"{type(error).__name__}: {error}"
                section.facts[label] = f"{home}: fails: {reason}"
                section.find("note", f"the plug-in {point.name} of {home} cannot be imported: {reason}",
                             f"update or remove it: pip uninstall {home}")  # fmt: skip
            else:
                section.facts[label] = home
    if not section.facts:
        section.facts["plug-ins"] = "none"


def read_variables(section: Section) -> None:
    """Environment variables that change what the engine does; values that may be secret are not shown."""
    from volumetric.base.errors import DeviceError
    from volumetric.devices.named_devices import check_name

    for name in sorted(os.environ):
        if name in _VARIABLES or name.startswith(_PREFIXES):
            section.facts[name] = "set, not shown" if _SECRET.search(name) else os.environ[name]
    if not section.facts:
        section.facts["variables"] = "none set"
    try:
        check_name("auto")
    except DeviceError as error:
        section.find("broken", str(error), f"unset VOLUMETRIC_DEVICE, or set it to a device; {error.hint}")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        section.find("broken", "NUMBA_DISABLE_JIT is set: no kernel is compiled", "unset NUMBA_DISABLE_JIT")
