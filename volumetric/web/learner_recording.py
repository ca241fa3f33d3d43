"""LearnerRecording: the updates and predictions of a learner as programs of a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from volumetric.analysis.standardise import Standardisation
from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.gpu_context import BufferSlice
from volumetric.devices.gpu.graph.gpu_program import GpuProgram
from volumetric.devices.gpu.graph.graphs import GpuGraphs
from volumetric.devices.gpu.graph.store import GpuStore
from volumetric.devices.gpu.recording_context import RecordedBuffer, RecordingContext
from volumetric.network import INPUT, Network
from volumetric.network.weight_store import Params
from volumetric.run.graph.training_graphs import ForwardPass, predict_graph
from volumetric.train import Batch, CrossEntropy, TrainConfig
from volumetric.train.backprop_credit import BackpropCredit
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.optim import Optimiser
from volumetric.train.prepared_batch import PreparedBatch
from volumetric.train.whole_batches import WholeTime
from volumetric.web.variant_writer import VariantWriter


class LearnerRecording:
    """A learner on the recording context of a variant; parameters as of `LearnerNetwork`."""

    def __init__(
        self,
        network: Network,
        params: Params,
        config: TrainConfig,
        batches: Sequence[int],
        steps: int | None,
        classes: Sequence[str] | None,
        inputs: Standardisation | None,
        rows: Sequence[int],
        writer: VariantWriter,
    ) -> None:
        self._params, self._config, self._steps, self._writer = params, config, steps, writer
        self._batches, self._classes, self._inputs = sorted(set(batches)), classes, inputs
        self._rows = sorted({*batches, *rows})
        self._context = RecordingContext(writer.variant.caps, features=writer.variant.features)
        self._learner = DeviceLearner(network, params, config.learner, GpuGraphs(self._context))
        if not isinstance(self._learner.time, WholeTime) or not isinstance(self._learner.credit, BackpropCredit):
            raise UnsupportedError(
                f"mode {config.mode.kind!r} does not learn in a page", hint='use mode "backprop", without carry'
            )
        self._time, self._credit = self._learner.time, self._learner.credit
        self._store = cast("GpuStore", self._learner.arrays.store)
        self._shared: dict[str, RecordedBuffer] = {}
        self._keep: list[GpuProgram] = []
        """Programs free their constants when they are dropped, and the writer reads them at the end."""

    def entries(self) -> dict[str, Any]:
        """Return the entries of network.json."""
        arrays, counts = self._learner.arrays, self._batches
        passes = {count: self._pose(count) for count in self._rows}
        one, _ = passes[counts[-1]]
        inputs, outputs, targets = self._input_ports(one), self._output_ports(one), self._target_ports(one)
        for ports, most in ((inputs, self._rows[-1]), (outputs, self._rows[-1]), (targets, counts[-1])):
            for port in ports.values():
                self._buffer(port["buffer"], port["stride"] * most)
        learnt = {name: {**port, "buffer": f"learn {port['buffer']}"} for name, port in inputs.items()}
        for port in learnt.values():
            self._buffer(port["buffer"], port["stride"] * counts[-1])
        self._buffer("knobs", 16)
        facts = len(one.of.objectives) + 2
        self._context.write(self._buffer("facts", 4 * facts), np.ones(facts, np.float32))
        updates = [self._update(count, *passes[count], learnt, targets) for count in counts]
        programs = [self._prediction(count, posed.of, inputs, outputs) for count, (posed, _) in passes.items()]
        for name, buffer in self._shared.items():
            self._writer.name(buffer, name)
        optimiser = self._config.optimiser
        weights = self._weights()
        learner = {
            "updates": updates,
            "inputs": learnt,
            "targets": targets,
            "losses": [objective.name for objective in one.of.objectives],
            "knobs": "knobs",
            "facts": "facts",
            "noise": {"buffer": "noise", "seed": self._config.seed} if one.of.draws else None,
            "rate": optimiser.lr,
            "optimiser": {"name": optimiser.kind, **host_numbers(optimiser)},
            "weights": weights,
            "states": self._states(),
            "parameters": int(sum(np.prod(shape) for shape in arrays.shapes.values())),
        }
        calls = {"programs": programs, "control": None, "positions": None, "independent": True}
        return {
            "inputs": inputs, "outputs": outputs, "calls": calls, "states": [], "learner": learner,
        }  # fmt: skip

    def _pose(self, count: int) -> tuple[PreparedBatch[ForwardPass], float]:
        """Return a batch of zeros in graph form, and the factor on its gradients."""
        lead = (count,) if self._steps is None else (count, self._steps)
        plan = self._learner.arrays.plan
        inputs = {
            name: np.zeros((*lead, *plan.values[i].shape[1:]), plan.values[i].dtype) for name, i in plan.inputs.items()
        }
        targets: dict[str, Array] = {}
        for name, loss in self._config.losses.of.items():
            shape = (*lead, *plan.values[plan.outputs[name]].shape[1:])
            ids = isinstance(loss, CrossEntropy)
            targets[name] = np.zeros(shape[:-1] if ids else shape, np.int64 if ids else np.float32)
        [one], scale = self._time.prepare_update([Batch(inputs, targets)])
        return one, scale

    def _update(
        self,
        count: int,
        one: PreparedBatch[ForwardPass],
        scale: float,
        inputs: Mapping[str, Any],
        targets: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Add the program of an update, and return its entry."""
        program = cast("GpuProgram", self._credit.step_program(one))
        self._keep.append(program)
        names = ["noise"] if one.of.draws else []
        names += [inputs[name]["buffer"] for name, _ in one.of.inputs]
        names += [targets[objective.name]["buffer"] for objective in one.of.objectives]
        values: list[Array | None] = [None] * len(names)
        if one.of.shared:  # the shares of the losses are the same in every update
            names.append(f"shares of {count}")
            values.append(one.arrays[-1])
        names, values = [*names, "knobs", "facts"], [*values, None, None]
        moves = []
        for name, part, value in zip(names, program.input_parts, values, strict=True):
            source = self._buffer(name, part.size)
            if value is not None:
                self._context.write(source, value)
            moves.append((BufferSlice(source, 0, part.size), part))
        label = self._program(f"update {count}", program, moves, ["facts"])
        counts = one.posed.counts
        factors = self._config.losses.scales(counts)
        return {"program": label, "rows": count, "scale": scale, "factors": [factors[name] for name in counts]}

    def _prediction(
        self, count: int, of: ForwardPass, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add the program of predictions, and return its entry."""
        arrays = self._learner.arrays
        program = cast("GpuProgram", arrays.program("predict", of, lambda: predict_graph(of, arrays.weights)))
        self._keep.append(program)
        moves = []
        for (name, _), part in zip(of.inputs, program.input_parts, strict=True):
            moves.append((BufferSlice(self._shared[inputs[name]["buffer"]], 0, part.size), part))
        results = [outputs[objective.name]["buffer"] for objective in of.objectives]
        label = self._program(f"rows {count}", program, moves, results)
        return {"program": label, "rows": count, "exact": True}

    def _program(
        self, name: str, program: GpuProgram, moves: list[tuple[BufferSlice, BufferSlice]], results: list[str]
    ) -> str:
        """Add a program that copies its inputs from shared buffers, and its results into some."""
        back = []
        for result, part, i in zip(results, program.output_parts, program.graph.outputs, strict=True):
            source, size = _slice(part), 4 * program.graph.tensors[i].size
            back.append((replace(source, size=size), BufferSlice(self._shared[result], 0, size)))
        sizes = [4 * program.graph.tensors[i].size for i in program.graph.inputs]
        exact = [
            (replace(source, size=size), replace(to, size=size))
            for (source, to), size in zip(moves, sizes, strict=True)
        ]
        steps = [self._writer.copies(exact), self._writer.dispatches(program.calls), self._writer.copies(back)]
        return self._writer.program(name, steps)

    def _buffer(self, name: str, nbytes: int) -> RecordedBuffer:
        """Return a buffer that the page writes or reads, by its name."""
        if name not in self._shared:
            self._shared[name] = self._context.buffer(nbytes, name)
        return self._shared[name]

    def _input_ports(self, one: PreparedBatch[ForwardPass]) -> dict[str, Any]:
        plan = one.of.plan
        ports = {
            name: _port(f"input {name}", plan.values[plan.inputs[name]].dtype, shape[1:])
            for name, shape in one.of.inputs
        }
        if self._inputs is not None:
            ports[INPUT]["standardise"] = {
                "mean": list(self._inputs.mean),
                "deviation": list(self._inputs.deviation),
            }
        return ports

    def _output_ports(self, one: PreparedBatch[ForwardPass]) -> dict[str, Any]:
        ports = {of.name: _port(f"output {of.name}", "float32", of.output[1:]) for of in one.of.objectives}
        if len(ports) == 1 and one.of.objectives[0].by_rows:
            [port] = ports.values()
            port["names"] = list(self._classes or map(str, range(port["shape"][-1])))
        return ports

    def _target_ports(self, one: PreparedBatch[ForwardPass]) -> dict[str, Any]:
        ports = {}
        losses = self._config.losses.of
        for of in one.of.objectives:
            ids = of.target_type == "int32"
            port = _port(f"target {of.name}", of.target_type, of.output[1:-1] if ids else of.output[1:])
            ports[of.name] = {**port, "loss": losses[of.name].kind, **({"classes": of.output[-1]} if ids else {})}
        return ports

    def _weights(self) -> dict[str, Any]:
        """Return where each parameter is; what no loss needs gets a buffer of its own."""
        arrays, described, store = self._learner.arrays, dict[str, Any](), self._store
        stored = set(store.keys())
        for key, weight in self._params.items():
            stack = arrays.stacks.by_member.get(key)
            if stack is not None:  # never transposed: those of ticks alone are
                whole = store.place(stack.key)
                size = whole.size // len(stack.keys)
                part = BufferSlice(whole.buffer, whole.offset + stack.keys.index(key) * size, size)
            elif key in stored:
                part = store.place(key)
            else:
                values = np.ascontiguousarray(weight.values(), np.float32)
                part = BufferSlice(self._context.upload(values, key), 0, values.nbytes)
            described[key] = {
                "buffer": self._writer.name(part.buffer, part.buffer.label), "offset": part.offset, "dtype": "float32",
                "shape": list(weight.shape),
            }  # fmt: skip
        return described

    def _states(self) -> list[str]:
        """Return the buffers that updates change."""
        arrays = self._learner.arrays
        changed = {*arrays.stacks.shapes(arrays.shapes), *arrays.buffers}
        stored = [*self._store.keys()]
        keys = [key for key in stored if key in changed or key not in self._params]
        names = [self._writer.name(self._store.buffer(key), key) for key in keys]
        return list(dict.fromkeys([*names, "facts"]))


def _slice(part: Any) -> BufferSlice:
    return part if isinstance(part, BufferSlice) else BufferSlice(part, 0, part.size)


def _port(buffer: str, dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    """Return a port of rows without padding."""
    shape = list(shape)
    return {"buffer": buffer, "dtype": dtype, "shape": shape, "stride": 4 * int(np.prod(shape, dtype=np.int64))}


def host_numbers(optimiser: Optimiser) -> dict[str, Any]:
    """Return how a page computes the two numbers of `Optimiser.knobs`.

    Raises
    ------
    UnsupportedError : they depend on the number of the update in a way that the page does not know
    """
    if optimiser.kind in ("adam", "adamw"):
        return {"knobs": "bias corrections", "beta1": optimiser.beta1, "beta2": optimiser.beta2}  # pyright: ignore[reportAttributeAccessIssue]
    if optimiser.kind == "momentum":
        return {"knobs": "first"}
    numbers = {optimiser.knobs(step) for step in (1, 2, 3, 1000)}
    if len(numbers) > 1:
        raise UnsupportedError(
            f"the optimiser {optimiser.kind!r} takes numbers of the host in each update, which a page cannot compute",
            hint="use adam, adamw, momentum, rmsprop or sgd",
        )
    return {"knobs": "constant", "values": list(numbers.pop())}
