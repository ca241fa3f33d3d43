"""Opening devices by name. Each device's module is imported only when it is asked for."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral

from volumetric.errors import DeviceError, SpecError
from volumetric.runtime.device import Device, DeviceInfo

NAMES = ("auto", "cpu", "gpu", "reference", "null")
_log = logging.getLogger(__name__)


def open_device(name: str | None = None, *, threads: int | None = None) -> Device:
    """Open a device.

    Parameters
    ----------
    name : ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or ``"gpu:part of an adapter's name"``, ``"reference"``, ``"null"``, or
        ``"auto"``: the best real GPU, else the CPU. None: the environment variable VOLUMETRIC_DEVICE, else auto.
    threads : threads of the CPU device; None: the physical cores that the process may use. See `capped_threads`.

    Raises
    ------
    DeviceError : no such device; the message lists what there is
    """
    threads = capped_threads(threads)
    name = name or os.environ.get("VOLUMETRIC_DEVICE") or "auto"
    check_name(name)
    kind, _, selector = name.partition(":")
    if kind == "auto":
        device, reason = _choose(threads)
        _log.info("device auto: %s (%s)", device.info.name, reason)
        return device
    if kind == "gpu":
        from volumetric.runtime.gpu import GpuDevice

        return GpuDevice(selector or None)
    if kind == "reference":
        from volumetric.runtime.reference import ReferenceDevice

        return ReferenceDevice()
    if kind == "null":
        from volumetric.runtime.null import NullDevice

        return NullDevice()
    from volumetric.runtime.cpu import CpuDevice

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
    from volumetric.runtime.cpu.cores import usable_cpus

    most = usable_cpus()
    if threads > most:
        _log.warning("threads=%d is more than the %d CPUs that this process may use: it gets %d", threads, most, most)
    return min(int(threads), most)


def check_name(name: str) -> None:
    """Raise `DeviceError` unless `name` is of a kind of device that this package knows; nothing is opened.

    Only GPUs are told apart by what follows a colon.
    """
    kind, _, selector = name.partition(":")
    if kind in NAMES and (not selector or kind == "gpu"):
        return
    close = difflib.get_close_matches(kind, NAMES, 1)
    raise DeviceError(
        f"there is no device {name!r}",
        hint=(f"did you mean {close[0]!r}? " if close else "") + "known: auto, cpu, gpu, gpu:N, reference, null",
    )


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
        from volumetric.runtime.gpu import GpuDevice

        try:
            return GpuDevice(name.partition(":")[2]), reason
        except DeviceError as error:
            _log.warning("GPU %s cannot be used: %s", name, error)
            reason = f"{name} cannot be used"
    from volumetric.runtime.cpu import CpuDevice

    return CpuDevice(threads=threads), reason


def explain_auto(devices: Sequence[DeviceInfo]) -> tuple[str, str]:
    """Return the name of the device that ``"auto"`` opens first among `devices` (GPUs best first), and why."""
    gpus = [info for info in devices if info.kind == "gpu"]
    real = [info for info in gpus if not info.software]
    if real:
        return real[0].name, f"best of {len(real)} GPUs" if len(real) > 1 else "the only GPU"
    if gpus:
        return "cpu", "the GPUs here are software, which is slower"
    return "cpu", why_no_gpu() or "no GPU was found"


def _gpus() -> list[DeviceInfo]:
    """GPUs, best first; none where no driver can be loaded."""
    from volumetric.runtime.gpu import list_gpus

    try:
        return list_gpus()
    except DeviceError as error:
        _log.info("no GPU: %s", error)
        return []


def why_no_gpu() -> str | None:
    """Return why `list_devices` shows no GPU and what may help, None if it shows one."""
    from volumetric.runtime.gpu.adapters import choose, ranked_adapters

    try:
        choose(ranked_adapters(), None)
    except DeviceError as error:
        return f"{error}; {error.hint}"
    return None


def list_devices() -> list[DeviceInfo]:
    """Describe every device that can be opened here."""
    from volumetric.runtime.cpu import CpuDevice
    from volumetric.runtime.reference import ReferenceDevice

    return [CpuDevice().info, *_gpus(), ReferenceDevice().info]
