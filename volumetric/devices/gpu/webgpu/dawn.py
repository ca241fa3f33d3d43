"""Dawn, the WebGPU implementation of Chromium, through the package wgpudawn (extra ``dawn``)."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.shaders.dialects import Dialect
from volumetric.devices.gpu.webgpu.webgpu_implementation import WebGpu

if TYPE_CHECKING:
    from volumetric.devices.gpu.dawn_executor import DawnExecutor
    from volumetric.devices.gpu.open_gpu import OpenGpu

_log = logging.getLogger(__name__)
_TOGGLES: Final = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
"""Toggles to enable, as far as this Dawn has them. The first offers experimental features, matrix units among them;
without the second the adapters of NVIDIA list no ``shader-f16``."""
_DEVICE_TOGGLES: Final = ("disable_robustness", "disable_workgroup_init")
"""Toggles of a device. Without checks of indices, which kernels clamp themselves, tokens of small models take 9 % less
time on an H200. Without zeros in workgroup memory, which no kernel relies on, it is 2 % less."""
_DISABLED_TOGGLES: Final = ("timestamp_quantization",)
"""Quantised timestamps count in steps of 0.1 ms, longer than most kernels."""
THREADS: Final = "implicit-device-synchronization"
"""Feature without which calls from several threads need a lock of their own."""
_MATRICES: Final = "chromium-experimental-subgroup-matrix"
_OWN_NAMES: Final = {"matrix-units": _MATRICES}
_NO_FEATURES: Final = frozenset({"immediates"})
"""What needs no feature on a device: a limit says whether it is there."""
_REMARK: Final = re.compile(r"^(?:Warning|Error): (.*)|^ - While (.*)|^    at .*|^$")
"""Lines that Dawn writes to stderr about a driver that it does not take."""


class Dawn:
    """Dawn: see `WebGpu`."""

    name: str = "dawn"
    dialect: Dialect = "tint"

    def __init__(self) -> None:
        self.remarks: str = ""

    @property
    def version(self) -> str:
        """Versions of the package and of the library in it."""
        from wgpudawn.backends import dawn

        return f"wgpudawn {self.flags.__version__}, Dawn {dawn.__version__}"

    @property
    def flags(self) -> Any:
        """Module with the flags and errors of the package."""
        import wgpudawn

        return wgpudawn

    def adapters(self, backend: str) -> list[Any]:
        """Adapters of one backend; see `WebGpu`."""
        try:
            from wgpudawn.backends.dawn import extras, gpu
        except ImportError as error:
            hint = 'pip install "volumetric-engine[dawn]", or unset VOLUMETRIC_WEBGPU'
            raise DeviceError(f"wgpudawn cannot be loaded: {error}", hint=hint) from error
        except (OSError, RuntimeError) as error:
            raise DeviceError(f"wgpudawn cannot be loaded: {error}", hint="set VOLUMETRIC_WEBGPU=wgpu") from error
        with _library_stderr() as lines:
            known = extras.all_toggles()
            with suppress(RuntimeError):  # another user of Dawn in this process came first
                extras.set_instance_extras(
                    enable_toggles=[name for name in _TOGGLES if name in known],
                    disable_toggles=[name for name in _DISABLED_TOGGLES if name in known],
                )
            # `enumerate_adapters_sync` leaves out all but one of several equal cards.
            adapters = gpu._enumerate_all_adapters()
        if lines:  # Dawn asks the drivers only once
            self.remarks = "; ".join(dict.fromkeys(lines))
        return [adapter for adapter in adapters if adapter.info["backend_type"] == backend]

    def features(self, adapter: Any) -> frozenset[str]:
        """Features by the names of the standard; see `WebGpu`."""
        standard = {own: name for name, own in _OWN_NAMES.items()}
        features = {str(standard.get(name, name)) for name in adapter.features}
        return frozenset(features | ({"immediates"} if adapter.limits["max-immediate-size"] >= 16 else set()))

    def has_matrix_units(self, adapter: Any) -> bool:
        """Whether the adapter lists fragments of 16 x 16 x 16 with float16 sides and float32 sums."""
        from wgpudawn.backends.dawn import extras

        if _MATRICES not in adapter.features or "shader-f16" not in adapter.features:
            return False
        wanted = {"component_type": "f16", "result_component_type": "f32", "m": 16, "n": 16, "k": 16}
        configs = extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", ())
        return any(all(config[name] == value for name, value in wanted.items()) for config in configs)

    def subgroup_sizes(self, adapter: Any) -> tuple[int, int]:
        """Return the sizes that Dawn states; `adapter.info` of wgpudawn 0.32 always has the bounds of the standard."""
        from wgpudawn.backends.dawn import _api

        info = _api.ffi.new("WGPUAdapterInfo *")
        if _api.lib.wgpuAdapterGetInfo(adapter._internal, info) != _api.lib.WGPUStatus_Success:
            return adapter.info["stackgroup_min_size"], adapter.info["stackgroup_max_size"]
        sizes = info.subgroupMinSize, info.subgroupMaxSize
        _api.lib.wgpuAdapterInfoFreeMembers(info[0])
        return sizes

    def open(self, adapter: Any, features: frozenset[str]) -> Any:
        """Return a device with these features, and all limits of the adapter."""
        own = {_OWN_NAMES.get(name, name) for name in features - _NO_FEATURES}
        from wgpudawn.backends.dawn import extras

        known = extras.all_toggles()
        return extras.request_device_sync(
            adapter,
            enable_toggles=[name for name in _DEVICE_TOGGLES if name in known],
            label="volumetric",
            required_features=sorted(own | ({THREADS} & set(adapter.features))),
            required_limits=dict(adapter.limits),
        )

    def create_module(self, device: Any, name: str, text: str) -> Any:
        """Compile WGSL; a toggle of the device leaves out the checks."""
        return device.create_shader_module(label=name, code=text)

    def create_pipelines(self, device: Any, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return pipelines that Dawn compiles on threads of its own; see `WebGpu`."""
        promises = [device.create_compute_pipeline_async(**request) for request in requests]
        return [promise.sync_wait() for promise in promises]

    def cause(self, message: str) -> str:
        """Return the first line: the cause, before the list of calls in which it occurred."""
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        return lines[0] if lines else ""

    def timestamp_seconds(self, queue: Any) -> float:
        """Return a nanosecond, to which Dawn converts the ticks of the driver."""
        return 1e-9

    def executor(self, context: OpenGpu) -> DawnExecutor:
        """Return an executor with prepared calls."""
        from volumetric.devices.gpu.dawn_executor import DawnExecutor

        return DawnExecutor(context)


@contextmanager
def _library_stderr() -> Iterator[list[str]]:
    """Collect what Dawn itself writes to stderr, where Python cannot see it; other lines go to stderr afterwards."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        try:
            before = os.dup(2)
        except OSError:  # stderr is closed
            yield lines
            return
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            _sort_lines(file, lines)


def _sort_lines(file: BinaryIO, lines: list[str]) -> None:
    file.seek(0)
    for line in file.read().decode(errors="replace").splitlines():
        remark = _REMARK.match(line)
        if remark is None:
            with suppress(OSError):
                os.write(2, f"{line}\n".encode())
        elif remark[1]:
            lines.append(remark[1].strip())
            _log.debug("Dawn: %s", remark[1])


DAWN: Final[WebGpu] = Dawn()
