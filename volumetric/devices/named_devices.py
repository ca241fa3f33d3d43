"""Open devices by name. The module of a device is imported when the device is first opened."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, overload

from volumetric.base.errors import DeviceError, SpecError
from volumetric.base.hints import suggestion
from volumetric.base.text_table import TextTable
from volumetric.run.device import Device, DeviceInfo

if TYPE_CHECKING:
    from volumetric.run.streams import StreamingDevice

NAMES = ("auto", "cpu", "gpu", "reference")
VARIABLE: Final = "VOLUMETRIC_DEVICE"
"""The environment variable that sets the meaning of "auto"."""
AnyDevice: TypeAlias = "str | Device"
"""Where to compute: a name for `open_device`, or an open device."""
OpenedDevice = TypeVar("OpenedDevice", bound="Device")
_KNOWN: Final = "known: auto, cpu, gpu, gpu:N, reference"
_OF_OTHERS: Final = re.compile(
    r"(?:cuda|mps|metal|mtl|rocm|hip|vulkan|xpu|opencl|sycl|webgpu|directml)(\d*)", re.IGNORECASE
)
"""Names of GPUs in other programs, by vendor or API; some have a number, as in CUDA0."""
_log = logging.getLogger(__name__)


@overload
def open_device(device: str = "auto", *, threads: int | None = None) -> StreamingDevice: ...


@overload
def open_device(device: OpenedDevice, *, threads: int | None = None) -> OpenedDevice: ...


@overload
def open_device(device: AnyDevice, *, threads: int | None = None) -> Device: ...


def open_device(device: AnyDevice = "auto", *, threads: int | None = None) -> Device:
    """Open a device; return an open device unchanged.

    Parameters
    ----------
    device : ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or ``"gpu:part of an adapter's name"``, ``"reference"``, or
        ``"auto"``: the device in the environment variable VOLUMETRIC_DEVICE, else the best real GPU, else the CPU. A
        software GPU is opened only by name.
    threads : threads of the CPU device; None: the physical cores that the process may use. See `capped_threads`.

    Raises
    ------
    DeviceError : no such device; the message lists the available ones
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
        from volumetric.devices.reference_device import ReferenceDevice

        return ReferenceDevice()
    from volumetric.devices.cpu import CpuDevice

    return CpuDevice(threads=threads)


def capped_threads(threads: int | None) -> int | None:
    """Return `threads`, limited with a warning to the number of CPUs that the process may use.

    The threads of a run synchronise at barriers many times per token: threads beyond the number of CPUs only wait for
    each other, and a thousand of them overload a machine.

    Raises
    ------
    SpecError : it is not a whole number of 1 or more
    """
    if threads is None:
        return None
    if not isinstance(threads, Integral) or threads < 1:
        raise SpecError(f"threads must be a whole number of 1 or more, got {threads!r}")
    from volumetric.devices.cpu.cpu_count import usable_cpus

    most = usable_cpus()
    if threads > most:
        _log.warning("threads=%d exceeds the %d CPUs that this process may use: using %d", threads, most, most)
    return min(int(threads), most)


def check_name(name: str) -> str:
    """Return the device that `name` means: for "auto" the one in VOLUMETRIC_DEVICE, if set; else `name`.

    Raises
    ------
    DeviceError : no device of this package has such a name. No device is opened; only for GPUs the part after the colon
        is used.
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
    """Return the facts of `list_devices` plus those known only after opening: measurements, or the failure.

    A listed GPU states its limits, but drivers have others, such as the number of rounds after which they end a loop.
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
    """Return the name of the device that ``"auto"`` opens first from `devices` (GPUs best first), and the reason.

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
    """Return the GPUs, best first; none if no driver can be loaded."""
    from volumetric.devices.gpu import list_gpus

    try:
        return list_gpus()
    except DeviceError as error:
        _log.info("no GPU: %s", error)
        return []


def why_no_gpu() -> str | None:
    """Return why `list_devices` shows no GPU and what may help; None if it shows one."""
    from volumetric.devices.gpu.adapters import choose_adapter, ranked_adapters

    try:
        choose_adapter(ranked_adapters(), None)
    except DeviceError as error:
        return f"{error}; {error.hint}"
    return None


class DeviceList(list[DeviceInfo]):
    """Devices. ``print`` and notebooks show a table."""

    def summary(self) -> TextTable:
        """Return the table."""
        rows = tuple((info.name, info.description + " (software)" * info.software) for info in self)
        return TextTable(columns=("device", "description"), rows=rows)

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()


def list_devices() -> DeviceList:
    """Describe every device that can be opened here."""
    from volumetric.devices.cpu import CpuDevice
    from volumetric.devices.reference_device import ReferenceDevice

    return DeviceList([CpuDevice().info, *_gpus(), ReferenceDevice().info])
