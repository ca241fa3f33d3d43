"""Which WebGPU implementation opens a GPU: the one named by hand, or the faster one where both offer it.

What was measured is kept in a file of the user's cache for the GPU, its driver, and the versions of both.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import platformdirs

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, DeviceError
from volumetric.devices.gpu.adapters import GpuAdapter
from volumetric.devices.gpu.implementation_speed import ImplementationSpeed, measure_speed
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE, implementation_by_hand, webgpu

_log = logging.getLogger(__name__)

_KEPT = 1.03
"""Times as fast as the first of `NAMES` another implementation must be, in the geometric mean of tokens and prompts:
less is noise."""
_SLOWEST_TOKENS = 0.85
"""Times as fast for tokens as the other one an implementation must be, however fast it is for prompts."""
_MEASUREMENT = 2
"""Number of the way to measure: files of others are not read."""


@dataclass(frozen=True, slots=True)
class ImplementationChoice:
    """An implementation, and why it was chosen."""

    name: str
    reason: str


def choose_implementation(
    adapter: GpuAdapter,
    *,
    measure: Callable[[GpuAdapter, str], ImplementationSpeed] | None = None,
    directory: Path | None = None,
) -> ImplementationChoice:
    """Choose the implementation for a GPU.

    Parameters
    ----------
    measure : measures one that was not measured before; None: without a measurement it is the first of `NAMES`
    directory : folder of the file; None: the user's cache

    Raises
    ------
    DeviceError : the one in VOLUMETRIC_WEBGPU does not offer this GPU
    """
    wanted = implementation_by_hand()
    if wanted is not None:
        if wanted not in adapter.offers:
            raise DeviceError(
                f"{VARIABLE}={wanted} does not offer {adapter.info['device']}: {adapter.refusals.get(wanted, '')}",
                hint=f"unset {VARIABLE}, or set it to {next(iter(adapter.offers))}",
            )
        return ImplementationChoice(wanted, f"{VARIABLE} names it")
    offered = [name for name in NAMES if name in adapter.offers]
    if len(offered) == 1:
        return ImplementationChoice(offered[0], "the only one that offers this GPU")
    if adapter.is_software:
        return ImplementationChoice(offered[0], "the default of software GPUs")
    path = _file(adapter, offered, directory)
    speeds = _stored_speeds(path, offered)
    if speeds is None and measure is not None:
        speeds = _measured_speeds(adapter, offered, measure)
        _save(path, speeds)
    if speeds is None:
        return ImplementationChoice(offered[0], "the default until the GPU is opened, which measures both")
    return _fastest(offered, speeds)


def measure_implementation(adapter: GpuAdapter, name: str) -> ImplementationSpeed:
    """Open a GPU by one implementation, measure it, and close it."""
    context = OpenGpu(adapter.listed_again(), name)
    try:
        return measure_speed(context)
    finally:
        context.device.destroy()


def _fastest(offered: list[str], speeds: Mapping[str, ImplementationSpeed]) -> ImplementationChoice:
    first, second = offered
    if second not in speeds or first not in speeds:
        name = first if first in speeds or second not in speeds else second
        return ImplementationChoice(name, "the other one fails on this GPU")
    token, prompt = (getattr(speeds[first], part) / getattr(speeds[second], part) for part in ("token", "prompt"))
    faster = sqrt(token * prompt) >= _KEPT or token * _SLOWEST_TOKENS > 1
    name = second if faster and token >= _SLOWEST_TOKENS else first
    return ImplementationChoice(
        name, f"measured: {second} is {token:.2f} times as fast as {first} for tokens, {prompt:.2f} times for prompts"
    )


def _measured_speeds(
    adapter: GpuAdapter, offered: list[str], measure: Callable[[GpuAdapter, str], ImplementationSpeed]
) -> dict[str, ImplementationSpeed]:
    speeds = {}
    for name in offered:
        try:
            speeds[name] = measure(adapter, name)
        except DeviceError as error:
            _log.warning("%s cannot be measured on %s: %s", name, adapter.info["device"], error)
    return speeds


def _file(adapter: GpuAdapter, offered: list[str], directory: Path | None) -> Path:
    base = directory or platformdirs.user_cache_path("volumetric", appauthor=False) / "gpu"
    identity = " ".join([adapter.identity, *(webgpu(name).version for name in offered), str(_MEASUREMENT)])
    return base / f"webgpu-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def _stored_speeds(path: Path, offered: list[str]) -> dict[str, ImplementationSpeed] | None:
    """Return what the file says; None where there is none that can be used."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        speeds = {name: ImplementationSpeed(**stored[name]) for name in offered if name in stored}
        usable = all(speed.token > 0 and speed.prompt > 0 for speed in speeds.values())
    except (OSError, ValueError, TypeError):
        return None
    return speeds if speeds and usable else None


def _save(path: Path, speeds: Mapping[str, ImplementationSpeed]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({name: speed.describe() for name, speed in speeds.items()}, indent=1).encode())
    except (OSError, CheckpointError) as error:
        _log.warning("what was measured of the GPU cannot be saved: %s", error)
