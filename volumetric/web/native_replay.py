"""NativeReplay: replays an exported folder on a GPU of this machine, from its files alone, as a browser does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, WorkgroupGrid
from volumetric.web.export_network import FORMAT, MANIFEST, VERSION
from volumetric.web.variants import FALLBACK

if TYPE_CHECKING:
    from volumetric.devices.gpu.open_gpu import OpenGpu

_KINDS: Final = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}
IN_FLIGHT: Final = 3
"""Submissions whose copies may wait to be collected."""
_SUBGROUPS: Final = "enable subgroups;\n"


class NativeReplay:
    """One variant of a folder on one GPU.

    Parameters
    ----------
    folder : an export
    context : the open GPU
    subgroup_sizes : smallest and largest subgroup of it

    Attributes
    ----------
    manifest : network.json
    variant : the first one whose needs the GPU meets

    Raises
    ------
    CheckpointError : the folder is damaged, or of a later version
    """

    def __init__(
        self, folder: str | os.PathLike[str], context: OpenGpu, subgroup_sizes: tuple[int, int] = (0, 0)
    ) -> None:
        home = Path(folder)
        self.manifest: dict[str, Any] = _read_manifest(home)
        self.context: OpenGpu = context
        features = context.features | ({FALLBACK} if context.software else set())
        self.variant: dict[str, Any] = next(
            one for one in self.manifest["variants"] if _meets(one["needs"], features, subgroup_sizes)
        )
        self._executor = context.new_executor()
        self._pieces = _Pieces(home, self.manifest["pieces"])
        self._described: dict[str, dict[str, Any]] = {one["name"]: one for one in self.variant["buffers"]}
        self.buffers: dict[str, Any] = {
            name: context.buffer(one["bytes"], name, uniform=bool(one.get("uniform")))
            for name, one in self._described.items()
        }
        for name in self.buffers:
            self.restore(name)
        self._numbered = list(self.buffers.values())
        self._layouts, self._pipelines = self._compile()
        self._steps: dict[str, list[Any]] = {}
        self._readbacks: list[Any] = [None] * IN_FLIGHT
        self._turn = 0

    def restore(self, name: str) -> None:
        """Write the first contents of a buffer."""
        described, buffer = self._described[name], self.buffers[name]
        contents = np.zeros(described["bytes"], np.uint8)
        data = base64.b64decode(described["data"]) if "data" in described else None
        parts = [data] if data is not None else [self._pieces.part(*part) for part in described.get("parts", ())]
        at = 0
        for part in parts:
            contents[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        self.context.write(buffer, contents)

    def write(self, name: str, values: NDArray[Any], offset: int = 0) -> None:
        """Write numbers to a buffer."""
        self.context.write(self.buffers[name], values, offset)

    def read(self, name: str, nbytes: int, offset: int = 0) -> NDArray[np.uint8]:
        """Wait, and return bytes of a buffer."""
        return self.context.read(self.buffers[name], nbytes, offset)

    def submit(self, programs: Sequence[str], rows: CallRows = ONE_ROW) -> None:
        """Submit programs for a call of so many rows."""
        self._executor.submit(self._commands(programs, rows))

    def submit_with_copy(
        self, programs: Sequence[str], name: str, nbytes: int, rows: CallRows = ONE_ROW
    ) -> tuple[Any, int, int]:
        """Submit programs with a copy of the first bytes of a buffer; return the argument of `collect`."""
        turn = self._turn % IN_FLIGHT
        self._turn += 1
        if self._readbacks[turn] is None or self._readbacks[turn].size < nbytes:
            self._readbacks[turn] = self.context.buffer(nbytes, "results", read=True)
        target = self._readbacks[turn]
        copy = CopyCommand(self.buffers[name], 0, target, 0, nbytes)
        return target, nbytes, self._executor.submit([*self._commands(programs, rows), copy])

    def collect(self, submitted: tuple[Any, int, int]) -> bytes:
        """Wait for a submission, and return the bytes that it copied."""
        return bytes(self._executor.read(*submitted))

    def close(self) -> None:
        """Free the buffers."""
        self._executor.close()
        for buffer in self.buffers.values():
            self.context.free(buffer)
        self.buffers.clear()

    def _commands(self, programs: Sequence[str], rows: CallRows) -> list[Command]:
        commands: list[Command] = []
        for name in programs:
            if name not in self._steps:
                self._steps[name] = [self._prepare(step) for step in self.variant["programs"][name]]
            for step in self._steps[name]:
                commands += step if isinstance(step, list) else [PassCommand(step[0], rows)]
        return commands

    def _prepare(self, step: Mapping[str, Any]) -> Any:
        if "copies" in step:
            numbered = self._numbered
            return [CopyCommand(numbered[a], at, numbered[b], to, size) for a, at, b, to, size in step["copies"]]
        return (self._executor.prepare([self._bind(*one) for one in step["dispatches"]]),)

    def _bind(self, number: int, binds: Sequence[Any], size: Sequence[int], rule: Any = None) -> BoundDispatch:
        label = self.variant["pipelines"][number]["label"]
        entries = []
        for index, buffer, *part in binds:
            whole = self._numbered[buffer]
            offset, nbytes = part or (0, whole.size)
            entries.append({"binding": index, "resource": {"buffer": whole, "offset": offset, "size": nbytes}})
        group = self.context.device.create_bind_group(label=label, layout=self._layouts[number], entries=entries)
        x, y, z = size
        grid = WorkgroupGrid(x=x, y=y, z=z)
        if rule is not None:
            over, times, rows_each, extra = rule
            grid = WorkgroupGrid(x=x, z=z, over=over, times=times, rows_each=rows_each, extra=extra)
        return BoundDispatch(label, label, self._pipelines[number], group, grid, b"")

    def _compile(self) -> tuple[list[Any], list[Any]]:
        device, webgpu = self.context.device, self.context.webgpu
        layouts, requests, modules = [], [], {}
        for one in self.variant["pipelines"]:
            number, text = one["module"], self.manifest["modules"][one["module"]]
            if number not in modules:
                text = text.replace(_SUBGROUPS, "") if webgpu.dialect == "naga" else text  # naga needs no directive
                modules[number] = webgpu.create_module(device, one["label"], text)
            entries = [
                {"binding": index, "visibility": 4, "buffer": {"type": _KINDS[access]}}
                for index, access in one["bindings"]
            ]
            layouts.append(device.create_bind_group_layout(entries=entries))
            whole = device.create_pipeline_layout(bind_group_layouts=[layouts[-1]])
            compute = {"module": modules[number], "entry_point": "main"}
            requests.append({"label": one["label"], "layout": whole, "compute": compute})
        with self.context.guard("compiling the modules of an export"):
            return layouts, webgpu.create_pipelines(device, requests) if requests else []


class _Pieces:
    """The pieces of a folder, each read and checked once."""

    def __init__(self, home: Path, described: Sequence[Mapping[str, Any]]) -> None:
        self._home, self._described = home, described
        self._checked: dict[int, bytes] = {}

    def part(self, piece: int, offset: int, nbytes: int) -> bytes:
        """Return bytes of a piece. Raises `CheckpointError` if it is damaged."""
        if piece not in self._checked:
            one = self._described[piece]
            data = (self._home / one["file"]).read_bytes()
            if len(data) != one["bytes"] or hashlib.sha256(data).hexdigest() != one["sha256"]:
                raise CheckpointError(f"{self._home / one['file']} is damaged", hint="export the network again")
            self._checked[piece] = data
        return self._checked[piece][offset : offset + nbytes]


def _read_manifest(home: Path) -> dict[str, Any]:
    path = home / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}", hint="export the network again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not an export for browsers")
    if manifest.get("version") != VERSION:
        raise CheckpointError(f"{path} has version {manifest.get('version')}, this program reads {VERSION}")
    return manifest


def _meets(needs: Mapping[str, Any], features: frozenset[str], sizes: tuple[int, int]) -> bool:
    """Return whether a GPU has what a variant needs."""
    return features.issuperset(needs["features"]) and needs["subgroup"] <= sizes[0]
