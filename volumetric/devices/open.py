"""Opening devices by name. Each device's module is imported only when it is asked for."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Final, TypeAlias

from volumetric.base.errors import DeviceError, SpecError
from volumetric.base.hints import suggestion
from volumetric.run.device import Device, DeviceInfo

NAMES = ("auto", "cpu", "gpu", "reference")
VARIABLE: Final = "VOLUMETRIC_DEVICE"
"""The environment variable that says what "auto" is."""
AnyDevice: TypeAlias = "str | Device"
"""Where to compute: a name, as `open_device` takes it, or an open device."""
_KNOWN: Final = "known: auto, cpu, gpu, gpu:N, reference"
_OF_OTHERS: Final = re.compile(
    r"(?:cuda|mps|metal|mtl|rocm|hip|vulkan|xpu|opencl|sycl|webgpu|directml)(\d*)", re.IGNORECASE
)
"""What other programs call a GPU, by its maker or by the interface to it; some with its number, CUDA0."""
_log = logging.getLogger(__name__)


def open_device(device: AnyDevice = "auto", *, threads: int | None = None) -> Device:
    """Open a device; one that is open already is returned as it is.

    Parameters
    ----------
    device : ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or ``"gpu:part of an adapter's name"``, ``"reference"``, or
        ``"auto"``: what the environment variable VOLUMETRIC_DEVICE names, else the best real GPU, else the CPU. A GPU
        in software is taken only where it is named.
    threads : threads of the CPU device; None: the physical cores that the process may use. See `capped_threads`.

    Raises
    ------
    DeviceError : no such device; the message lists what there is
    """
    threads = capped_threads(threads)
    if not isinstance(device, str):
        if not hasattr(device, "compile"):
            raise DeviceError(f"device must be a name or an open device, got {type(device).__name__}", hint=_KNOWN)
        return device
    name = check_name(device)
    kind, _, selector = name.partition(":")
    if kind == "auto":
        device, reason = _choose(threads)
        _log.info("device auto: %s (%s)", device.info.name, reason)
        return device
    if kind == "gpu":
        from volumetric.devices.gpu import GpuDevice

        return GpuDevice(selector or None)
    if kind == "reference":
        from volumetric.devices.reference import ReferenceDevice

        return ReferenceDevice()
    from volumetric.devices.cpu import CpuDevice

    return CpuDevice(threads=threads)


def capped_threads(threads: int | None) -> int | None:
    """Return `threads`, but no more than the CPUs that the process may use, with a warning where that is fewer.

    The threads of a run meet at barriers many times for each token: beyond the CPUs they only wait for each other, and
    a thousand of them take a machine down.

    Raises
    ------
    SpecError : it is no whole number of 1 or more
    """
    if threads is None:
        return None
    if not isinstance(threads, Integral) or threads < 1:
        raise SpecError(f"threads must be a whole number of 1 or more, got {threads!r}")
    from volumetric.devices.cpu.cores import usable_cpus

    most = usable_cpus()
    if threads > most:
        _log.warning("threads=%d is more than the %d CPUs that this process may use: it gets %d", threads, most, most)
    return min(int(threads), most)


def check_name(name: str) -> str:
    """Return what `name` stands for: itself, or for "auto" what VOLUMETRIC_DEVICE names, if it is set.

    Raises
    ------
    DeviceError : it is of no kind of device that this package knows; nothing is opened. Only GPUs are told apart by
        what follows a colon.
    """
    source, named = "", name
    if name == "auto" and os.environ.get(VARIABLE):
        source, named = f"{VARIABLE}: ", os.environ[VARIABLE]
    kind, _, selector = named.partition(":")
    if kind in NAMES and (not selector or kind == "gpu"):
        return named
    other = _OF_OTHERS.fullmatch(kind)
    if other is not None:
        number = selector or other[1]
        meant = f"gpu:{number}" if number else "gpu"
        near = f"{meant} is what you mean: GPUs of all makers run through Vulkan, Metal or Direct3D 12;"
    else:
        near = suggestion(kind, NAMES, "")
    raise DeviceError(f"{source}there is no device {named!r}", hint=f"{near} {_KNOWN}" if near else _KNOWN)


def examine_device(info: DeviceInfo) -> DeviceInfo:
    """Return what `list_devices` says of a device and what only opening it tells: what was measured, or what failed.

    A GPU states its limits when it is listed, but drivers have others, such as a number of rounds after which they end
    a loop.
    """
    if info.kind != "gpu":
        return info
    try:
        return open_device(info.name).info
    except DeviceError as error:
        return replace(info, details={**info.details, "error": str(error)})


def _choose(threads: int | None) -> tuple[Device, str]:
    gpus = _gpus()
    name, reason = explain_auto(gpus)
    if name != "cpu":
        from volumetric.devices.gpu import GpuDevice

        try:
            return GpuDevice(name.partition(":")[2]), reason
        except DeviceError as error:
            _log.warning("GPU %s cannot be used: %s", name, error)
            reason = f"{name} cannot be used"
    from volumetric.devices.cpu import CpuDevice

    return CpuDevice(threads=threads), reason


def explain_auto(devices: Sequence[DeviceInfo]) -> tuple[str, str]:
    """Return the name of the device that ``"auto"`` opens first among `devices` (GPUs best first), and why.

    Raises
    ------
    DeviceError : VOLUMETRIC_DEVICE names no device
    """
    named = check_name("auto")
    if named != "auto":
        return named, f"{VARIABLE} names it"
    gpus = [info for info in devices if info.kind == "gpu"]
    real = [info for info in gpus if not info.software]
    if real:
        return real[0].name, f"best of {len(real)} GPUs" if len(real) > 1 else "the only GPU"
    if gpus:
        return "cpu", "the GPUs here are software, which is slower"
    return "cpu", why_no_gpu() or "no GPU was found"


def _gpus() -> list[DeviceInfo]:
    """GPUs, best first; none where no driver can be loaded."""
    from volumetric.devices.gpu import list_gpus

    try:
        return list_gpus()
    except DeviceError as error:
        _log.info("no GPU: %s", error)
        return []


def why_no_gpu() -> str | None:
    """Return why `list_devices` shows no GPU and what may help, None if it shows one."""
    from volumetric.devices.gpu.adapters import choose, ranked_adapters

    try:
        choose(ranked_adapters(), None)
    except DeviceError as error:
        return f"{error}; {error.hint}"
    return None


def list_devices() -> list[DeviceInfo]:
    """Describe every device that can be opened here."""
    from volumetric.devices.cpu import CpuDevice
    from volumetric.devices.reference import ReferenceDevice

    return [CpuDevice().info, *_gpus(), ReferenceDevice().info]
