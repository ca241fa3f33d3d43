"""RecordingDevice: compiles plans and graphs as a GPU does, on a `RecordingContext`."""

from __future__ import annotations

from volumetric.devices.gpu.device import GpuCompiler
from volumetric.devices.gpu.recording_context import RecordingContext
from volumetric.run.device import DeviceInfo


class RecordingDevice(GpuCompiler[RecordingContext]):
    """A GPU of another machine: executables have recordings, and run nothing."""

    @property
    def info(self) -> DeviceInfo:
        """A name: nothing else is known of that machine."""
        return DeviceInfo(name="recording", kind="gpu", description="recordings for another machine")
