"""Calls of an executable as plain data: programs for numbers of rows, the control block, ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from volumetric.devices.gpu.call_schedule import LISTED_ROWS, NEAR_PAGES, PLACES
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.gpu_state import GpuState
from volumetric.devices.gpu.value_buffers import RowPort
from volumetric.web.variant_writer import VariantWriter


class CallRecording:
    """One sequence of an executable, with room for all of its rows.

    Parameters
    ----------
    writer : receives programs and buffers
    executable : on the variant's recording device
    prefix : of the names of buffers and programs
    """

    def __init__(self, writer: VariantWriter, executable: GpuExecutable, prefix: str = "") -> None:
        self.writer = writer
        self.executable: GpuExecutable = executable
        self._prefix = prefix
        self.state: GpuState = executable.new_state()
        most = executable.most_positions
        executable.pool.reserve([(self.state.pages, 0, executable.options.context if most is None else most)])

    @property
    def most_rows(self) -> int:
        """Most rows of a call with outputs."""
        scratch = self.executable.scratch
        most = min(scratch.rows, scratch.tail_rows, self.executable.options.context)
        return min(most, self.executable.graph.max_rows or most, self.executable.most_positions or most)

    def program(
        self, name: str, rows: int, part: Literal["whole", "body"] = "whole", outputs: list[str] | None = None
    ) -> dict[str, Any]:
        """Add a program of a call, and return its entry in the format."""
        counted, calls = self.executable.record_call(self.state, rows, part, outputs)
        name = self.writer.program(self._prefix + name, [self.writer.dispatches(calls, counted)])
        return {"program": name, "rows": rows, "exact": bool(counted.lengths)}

    def programs(self, rows: Iterable[int]) -> list[dict[str, Any]]:
        """Add programs with all outputs for numbers of rows, as far as calls have so many; at least one."""
        counts = sorted({min(count, self.most_rows) for count in rows})
        return [self.program(f"rows {count}", count) for count in counts]

    def control(self) -> dict[str, Any]:
        """Return where the control block is, and the constants in it."""
        recordings, pages = self.executable.recordings, self.state.pages
        buffer, block = recordings.control_block
        return {
            "buffer": self.writer.name(buffer, f"{self._prefix}control"),
            "block": block,
            "places": PLACES,
            "owners": LISTED_ROWS // 2,
            "singles": not recordings.whole,
            "line": pages.line,
            "pages": self.executable.pool.control_block_pages(pages)[:NEAR_PAGES],
        }

    def ports(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return inputs and outputs in the form of the format."""
        inputs, outputs = self.executable.row_ports()
        return self._described("input", inputs), self._described("output", outputs)

    def states(self) -> list[str]:
        """Name the buffers that hold what a sequence has seen, and return the names."""
        names = [(name, buffer) for name, buffer in self.executable.pool.named_buffers.items()]
        tables = {id(one.tables) for one in self.executable.pool.sets}
        return [self.writer.name(buffer, f"{self._prefix}{name}") for name, buffer in names if id(buffer) not in tables]

    def _described(self, kind: str, ports: Mapping[str, RowPort]) -> dict[str, Any]:
        return {
            name: {
                "buffer": self.writer.name(port.buffer, f"{self._prefix}{kind} {name}"),
                "dtype": port.dtype,
                "shape": list(port.shape),
                "stride": port.stride,
            }
            for name, port in ports.items()
        }
