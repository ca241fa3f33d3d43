"""Recordings are plain data: written to JSON and read back, another host replays them to the same bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from tests.graph.test_networks import chain
from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.command_list import GpuRecording, RecordedDispatch
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, Dispatch, WorkgroupGrid
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.graph import GraphBuilder
from volumetric.layers import LSTM, Dense
from volumetric.network import Network, initialise
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows


def through_json(made: GpuRecording) -> GpuRecording:
    """What another host makes of a recording that came to it as JSON."""
    data = json.loads(json.dumps({"sizes": dict(made.sizes), "entries": [*map(plain, made.entries)]}, allow_nan=False))
    read = GpuRecording(entries=tuple(map(entry_of, data["entries"])), sizes=data["sizes"])
    assert [entry.dispatch.key for entry in read.entries] == [entry.dispatch.key for entry in made.entries]
    return read


def plain(entry: RecordedDispatch) -> dict[str, Any]:
    """An entry as what JSON can hold."""
    of = entry.dispatch
    own = {"kernel": of.kernel, "preludes": of.preludes, "constants": dict(of.constants), "args": of.args}
    return {"dispatch": own, "grid": asdict(of.grid), "buffers": dict(entry.buffers), "dims": entry.dims}


def entry_of(data: dict[str, Any]) -> RecordedDispatch:
    """The entry that `plain` wrote."""
    own = data["dispatch"]
    own |= {name: tuple(own[name]) for name in ("preludes", "args")}
    dispatch = Dispatch(grid=WorkgroupGrid(**data["grid"]), **own)
    return RecordedDispatch(dispatch=dispatch, buffers=data["buffers"], dims=tuple(data["dims"]))


class Host:
    """Another context, which has the contents of the buffers that a recording names, and shaders."""

    def __init__(self, context: OpenGpu, made: GpuRecording, contents: Mapping[str, Any]) -> None:
        self.context = context
        self.recording = made
        self.buffers = {name: context.buffer(size, name, uniform=True) for name, size in made.sizes.items()}
        for name, buffer in self.buffers.items():
            context.write(buffer, contents[name])

    def run(self, rows: CallRows = ONE_ROW) -> None:
        self.context.run(self.context.bind_all(self.recording.entries, self.buffers), rows)

    def read(self, name: str) -> np.ndarray:
        return self.context.read(self.buffers[name], self.recording.sizes[name])


def contents(executable: GpuExecutable, made: GpuRecording) -> dict[str, np.ndarray]:
    context, buffers = executable.context, executable._buffers()
    return {name: context.read(buffers[name], size) for name, size in made.sizes.items()}


def lstm() -> Network:
    layers = (Dense(in_features=6, out_features=5), LSTM(input_size=5, hidden_size=7))
    return chain(*layers, Dense(in_features=7, out_features=3), shape=(6,))


@pytest.mark.thorough
@pytest.mark.parametrize("make", [tiny_llama, lstm])
def test_another_host_replays_a_token(native_device: GpuDevice, rng: np.random.Generator, make: Any) -> None:
    network = make()
    executable = native_device.compile(lower(network), initialise(network, 3), RunOptions(context=40))
    assert isinstance(executable, GpuExecutable)
    ids = network.input_dtype == "int32"
    x = rng.integers(0, 97, 9).astype(np.int32) if ids else rng.standard_normal((9, 6)).astype(np.float32)
    state = executable.new_state()
    executable.run([SequenceRows(state, x[:8], "none")])
    rows, _ = executable._place_rows([state], [1])
    executable.context.write(executable.scratch.buffers[executable.scratch.values[executable.recordings.input]], x[8:])
    made = executable.recordings.as_recording("whole", rows)
    host = Host(GpuDevice().context, through_json(made), contents(executable, made))
    host.run(rows)
    expected = executable.forward(state, x[8:])
    got = host.read(executable.scratch.values[executable.recordings.output]).view(np.float32)
    assert np.array_equal(got[: expected.size], expected.ravel())


def test_another_host_replays_a_step_of_a_graph(native_device: GpuDevice, rng: np.random.Generator) -> None:
    graphs = native_device.graphs()
    store = graphs.store()
    store.write("w", rng.standard_normal((5, 4)).astype(np.float32))
    work = GraphBuilder()
    x, w = work.input("x", (1, 3, 4)), work.stored_tensor("w", (5, 4))
    y = work.unary(work.gemm(x, work.reshape(w, (1, 5, 4)), trans_b=True), "silu")
    work.assign("w", work.affine(w, 0.5))
    program = graphs.compile(work.finish([work.softmax(work.reshape(y, (3, 5)))]), store)
    given = rng.standard_normal((1, 3, 4)).astype(np.float32)
    made = through_json(program.recording)
    zeros = {name: np.zeros(size, np.uint8) for name, size in made.sizes.items()}
    host = Host(GpuDevice().context, made, {**zeros, "input 0": given, "key w": store.get("w")})
    host.run()
    [expected] = program.run([given])
    outputs = [host.read(entry.buffers["y"]).view(np.float32) for entry in made.entries if "y" in entry.buffers]
    assert any(np.array_equal(found[:15], expected.ravel()) for found in outputs)
    assert np.array_equal(host.read("key w").view(np.float32)[:20], store.get("w").ravel())
