"""wgpu-native through the package wgpu: the implementation that is always installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.shaders.dialects import Dialect
from volumetric.devices.gpu.webgpu.webgpu_implementation import WebGpu

if TYPE_CHECKING:
    from volumetric.devices.gpu.native_executor import NativeExecutor
    from volumetric.devices.gpu.open_gpu import OpenGpu

_log = logging.getLogger(__name__)
_OWN_NAMES: Final = {"subgroups": "subgroup"}
"""Features that have another name than in the standard."""
_COMPILERS: Final = min(8, os.cpu_count() or 1)
"""Maximum number of threads that compile."""
_PACKAGE_HINT: Final = "wgpu is not whole in this environment: pip install --force-reinstall wgpu, or use device='cpu'"
_DRIVER_HINT: Final = (
    "install the GPU's Vulkan driver (Debian and Ubuntu: libvulkan1, mesa-vulkan-drivers), or use device='cpu'"
)


class WgpuNative:
    """wgpu-native: see `WebGpu`."""

    name: str = "wgpu"
    dialect: Dialect = "naga"
    remarks: str = ""

    @property
    def version(self) -> str:
        """Versions of the package and of the library in it."""
        from wgpu.backends import wgpu_native

        return f"wgpu {self.flags.__version__}, wgpu-native {wgpu_native.__version__}"

    @property
    def flags(self) -> Any:
        """Module with the flags and errors of the package."""
        import wgpu

        return wgpu

    def adapters(self, backend: str) -> list[Any]:
        """Adapters of one backend; see `WebGpu`."""
        try:
            import wgpu
            from wgpu.backends.wgpu_native.extras import set_instance_extras
        except (ImportError, OSError, RuntimeError) as error:
            raise DeviceError(f"wgpu cannot be loaded: {error}", hint=_PACKAGE_HINT) from error
        try:
            set_instance_extras(backends=[backend])
        except RuntimeError:
            # Another user of wgpu in this process came first; its adapters of other backends are filtered out below.
            _log.debug("the wgpu instance exists already")
        try:
            adapters = wgpu.gpu.enumerate_adapters_sync()
        except RuntimeError as error:
            raise DeviceError(f"GPUs cannot be listed: {error}", hint=_DRIVER_HINT) from error
        return [adapter for adapter in adapters if adapter.info["backend_type"] == backend]

    def features(self, adapter: Any) -> frozenset[str]:
        """Features by the names of the standard; see `WebGpu`."""
        standard = {own: name for name, own in _OWN_NAMES.items()}
        features = {str(standard.get(name, name)) for name in adapter.features}
        return frozenset(features - ({"immediates"} if adapter.limits["max-immediate-size"] < 16 else set()))

    def has_matrix_units(self, adapter: Any) -> bool:
        """Return False: wgpu-native 29 lists the feature and refuses every device that asks for it."""
        return False

    def subgroup_sizes(self, adapter: Any) -> tuple[int, int]:
        """Smallest and largest subgroup."""
        return adapter.info["stackgroup_min_size"], adapter.info["stackgroup_max_size"]

    def open(self, adapter: Any, features: frozenset[str]) -> Any:
        """Return a device with these features, and all limits of the adapter."""
        return adapter.request_device_sync(
            label="volumetric",
            required_features=sorted(_OWN_NAMES.get(name, name) for name in features),
            required_limits=dict(adapter.limits),
        )

    def create_module(self, device: Any, name: str, text: str) -> Any:
        """Compile WGSL without checks, which cost 15 % of the time per token of a small model on an H100."""
        from wgpu.backends.wgpu_native import _api

        source = _api.new_struct_p("WGPUShaderSourceWGSL *", code=_api.to_c_string_view(text))
        source[0].chain.sType = _api.lib.WGPUSType_ShaderSourceWGSL
        descriptor = _api.new_struct_p(
            "WGPUShaderModuleDescriptor *",
            nextInChain=_api.ffi.cast("WGPUChainedStruct *", source),
            label=_api.to_c_string_view(name),
        )
        module = _api.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
        return _api.GPUShaderModule(name, module, device)

    def create_pipelines(self, device: Any, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return pipelines that threads of this process compile, since wgpu has none of its own; see `WebGpu`."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(requests), _COMPILERS)) as pool:
            return list(pool.map(lambda request: device.create_compute_pipeline(**request), requests))

    def cause(self, message: str) -> str:
        """Return the last line: the cause, after the list of calls in which it occurred."""
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def timestamp_seconds(self, queue: Any) -> float:
        """Seconds of one tick of a timestamp query."""
        from wgpu.backends.wgpu_native import _api

        return 1e-9 * _api.lib.wgpuQueueGetTimestampPeriod(queue._internal)

    def executor(self, context: OpenGpu) -> NativeExecutor:
        """Return an executor with prepared calls."""
        from volumetric.devices.gpu.native_executor import NativeExecutor

        return NativeExecutor(context)


WGPU: Final[WebGpu] = WgpuNative()
