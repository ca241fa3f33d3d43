"""Clocked networks: one program for a tick, with states in buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from volumetric.base._typing import Shape
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.devices.gpu.gpu_context import BufferSlice
from volumetric.devices.gpu.recording_context import RecordedBuffer
from volumetric.devices.gpu.row_limits import UNLIMITED
from volumetric.layers.clock import Every
from volumetric.network import Params
from volumetric.web.row_networks import recording_device
from volumetric.web.variant_writer import VariantWriter

_SUBSETS: Final = 4
"""Inputs up to which there is a program for each subset of them; more arrive together or not at all.

What arrives is a constant of a tick's graph, so programs of single inputs do not add up to one tick. All share their
pipelines: the subsets of four inputs add 3 KB to a compressed network.json, those of six would add 45 KB.
"""


@dataclass(frozen=True)
class ClockedNetwork:
    """A network that runs tick by tick, one stream of it: a `RecordedKind`."""

    clocked: Clocked
    params: Params
    title: str
    origin: Mapping[str, str | None]
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = "ticks"

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record a tick with rows of each set of inputs; see `RecordedKind.record`."""
        stream = ClockedStream(recording_device(writer, UNLIMITED), self.clocked, self.params)
        network = self.clocked.network
        names = tuple(network.ports)
        inputs = {name: _port(writer, f"input {name}", port.shape, port.dtype) for name, port in network.ports.items()}
        for name, port in network.ports.items():
            clock = self.clocked.clocks.get(port.coord)
            if isinstance(clock, Every):
                inputs[name]["every"] = [clock.period, clock.phase]
            if self.clocked.hold.get(name) == "zero":
                inputs[name]["hold"] = "zero"
        outputs = {
            name: _port(writer, f"output {name}", network.shapes[coord][1:]) for name, coord in network.taps.items()
        }
        programs = []
        for fed in _subsets(names):
            program = stream.tick_program(fed)
            arrive = [(inputs[name]["source"], part) for name, part in zip(fed, program.input_parts, strict=True)]
            leave = [
                (part, outputs[name]["source"]) for name, part in zip(network.taps, program.output_parts, strict=True)
            ]
            steps = [writer.copies(_fitting(arrive)), writer.dispatches(program.calls), writer.copies(_fitting(leave))]
            title = " ".join(["tick", *fed]) if fed else "tick held"
            programs.append({"fed": list(fed), "program": writer.program(title, [s for s in steps if any(s.values())])})
        for port in (*inputs.values(), *outputs.values()):
            del port["source"]
        states = dict.fromkeys(writer.name(b, f"state {key}") for key, b in stream.state_buffers().items())
        return {"inputs": inputs, "outputs": outputs, "states": list(states), "ticks": {"programs": programs}}


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    if len(names) > _SUBSETS:
        return [names, ()]
    return [some for count in range(len(names), -1, -1) for some in combinations(names, count)]


def _port(writer: VariantWriter, name: str, shape: Shape, dtype: str = "float32") -> dict[str, Any]:
    size = 4
    for side in shape:
        size *= side
    buffer = RecordedBuffer(max(-(-size // 16) * 16, 16), name, uniform=False)
    return {
        "buffer": writer.name(buffer, name),
        "dtype": dtype,
        "shape": list(shape),
        "stride": size,
        "source": BufferSlice(buffer, 0, size),
    }


def _fitting(moves: list[tuple[BufferSlice, BufferSlice]]) -> list[tuple[BufferSlice, BufferSlice]]:
    """Copy as many bytes as both sides have."""
    return [
        (BufferSlice(a.buffer, a.offset, min(a.size, b.size)), b) for a, b in ((_part(a), _part(b)) for a, b in moves)
    ]


def _part(buffer: Any) -> BufferSlice:
    return buffer if isinstance(buffer, BufferSlice) else BufferSlice(buffer, 0, buffer.size)
