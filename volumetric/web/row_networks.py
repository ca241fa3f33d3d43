"""Networks on rows: independent rows, or streams of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from volumetric.devices.gpu.recording_context import RecordingContext
from volumetric.devices.gpu.recording_device import RecordingDevice
from volumetric.devices.gpu.row_limits import CallLimits
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import INPUT, OUTPUT
from volumetric.run.device import RunOptions
from volumetric.run.lower import is_endless, looks_ahead, lower
from volumetric.run.plan import Plan
from volumetric.web.call_recording import CallRecording
from volumetric.web.variant_writer import VariantWriter


@dataclass(frozen=True)
class RowNetwork:
    """A network that reads rows of numbers or ids: a `RecordedKind`.

    Attributes
    ----------
    model : network, weights, names of columns and classes
    rows : rows of the calls for which there are programs
    context : most rows of a sequence, if layers limit it
    """

    model: LoadedModel
    rows: Sequence[int]
    context: int
    title: str
    origin: Mapping[str, str | None]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The network as a plan."""
        return lower(self.model.network, self.context)

    @property
    def independent(self) -> bool:
        """Whether rows do not depend on each other."""
        return not (self.plan.states or self.whole) and is_endless(self.plan)

    @cached_property
    def whole(self) -> bool:
        """Whether rows depend on later ones, so that a sequence is one call."""
        return any(looks_ahead(self.plan, step) for step in self.plan.steps)

    @property
    def kind(self) -> str:
        """``"rows"``, ``"sequences"`` or ``"stream"``."""
        return "rows" if self.independent else "sequences" if self.whole else "stream"

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record calls of these numbers of rows; see `RecordedKind.record`."""
        counts = sorted({1, *self.rows})
        device = recording_device(writer, CallLimits(counts[-1], counts[-1]))
        options = RunOptions(context=max(self.context, counts[-1]))
        recording = CallRecording(writer, device.compile(self.plan, self.model.params, options))
        programs, (inputs, outputs) = recording.programs(counts), recording.ports()
        standardised = self.model.inputs
        if standardised is not None:
            inputs[INPUT]["standardise"] = {
                "mean": list(standardised.mean),
                "deviation": list(standardised.deviation),
            }
        if self.model.features:
            inputs[INPUT]["names"] = list(self.model.features)
        if self.model.classes:
            outputs[OUTPUT]["names"] = list(self.model.classes)
        return {
            "inputs": inputs,
            "outputs": outputs,
            "calls": {
                "programs": programs,
                "control": recording.control(),
                "positions": recording.executable.most_positions,
                "independent": self.independent,
                "whole": recording.executable.recordings.whole,
            },
            "states": recording.states(),
        }


def recording_device(writer: VariantWriter, limits: CallLimits) -> RecordingDevice:
    """Return the device of a variant."""
    variant = writer.variant
    return RecordingDevice(RecordingContext(variant.caps, features=variant.features), limits)
