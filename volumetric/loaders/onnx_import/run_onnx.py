"""An ONNX model ready to run on a device: inputs and outputs by name, any batch size and length."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.base.hints import suggestion
from volumetric.base.progress import byte_size
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.graph.build import GraphBuilder
from volumetric.graph.constant_folding import constant_values, split_constants
from volumetric.graph.graph_device import GraphProgram
from volumetric.graph.ops import Graph
from volumetric.graph.program_cache import ProgramCache
from volumetric.loaders.onnx_import.emit_onnx import MOST_KNOWN, emit_onnx
from volumetric.loaders.onnx_import.fold_known import cast_array
from volumetric.loaders.onnx_import.onnx_declaration import (
    OnnxInput,
    OnnxParameter,
    is_whole,
    onnx_dtype,
)
from volumetric.loaders.onnx_import.onnx_values import InputsNeededError, OnnxValue, known_value, tensor_shape
from volumetric.loaders.onnx_import.read_onnx import ReadOnnx, read_onnx

_LARGEST_ID = 2**31 - 1
_LARGEST_TENSOR = 2**31
"""Elements of the largest value that is computed."""
_LARGEST_SWITCH = 16
"""Elements of an input of integers on which a branch may depend, so that one graph is compiled for each value."""


def load_onnx(path: str | Path, device: AnyDevice = "auto", *, threads: int | None = None) -> OnnxModel:
    """Open an ONNX file, ready to run.

    Parameters
    ----------
    path : the ``.onnx`` file; files with its arrays must lie beside it
    device : ``"auto"``, ``"cpu"``, ``"gpu"``, ``"reference"``, or an open device
    threads : threads of the CPU device

    Raises
    ------
    CheckpointError : the file is damaged, or refers to files outside its directory
    UnsupportedError : it has operators that are not supported; all of them are named
    """
    path = Path(path)
    return OnnxModel(read_onnx(path), device, name=path.stem, threads=threads)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A program for inputs of given shapes: which inputs it takes, and its outputs."""

    program: GraphProgram | None
    takes: tuple[tuple[str, bool], ...]
    outputs: tuple[OnnxValue, ...]

    def close(self) -> None:
        """Free the resources of the program that Python does not manage."""
        close = getattr(self.program, "close", None)
        if close is not None:
            close()


class OnnxModel:
    """An ONNX model on a device.

    A graph is compiled for each set of input shapes, when it is first needed. The model computes in float32: types of
    16 bits are widened, and integers are exact up to 2²⁴.

    Attributes
    ----------
    name : name of the file
    graph : its graph as data
    inputs, outputs : names; `graph.inputs` has types and shapes
    operators : operator → how often it occurs
    producer : program that wrote the file
    classes : names of the output classes, if the file has them
    """

    def __init__(
        self, read: ReadOnnx, device: AnyDevice = "auto", *, name: str = "model", threads: int | None = None
    ) -> None:
        self.name, self.graph, self.producer, self.operators = name, read.graph, read.producer, read.operators
        self.metadata, self.classes = read.metadata, read.classes
        self.parameters: Mapping[str, Array] = read.arrays
        self.inputs = tuple(i.name for i in read.graph.inputs)
        self.outputs = tuple(output for output, _ in read.graph.outputs)
        self.device = open_device(device, threads=threads)
        graphs: Any = getattr(self.device, "graphs", None)
        if graphs is None:
            raise UnsupportedError(f"the device {self.device.info.name} runs no graphs")
        self._graphs = graphs()
        self._store = self._graphs.store()
        self._written: set[str] = set()
        self._programs: Any = ProgramCache()
        self._needed: set[str] = set()

    @property
    def size(self) -> int:
        """Number of stored weights."""
        return sum(array.size for array in self.parameters.values())

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model with inputs in order or by name: the output if there is one, else all outputs by name."""
        if len(args) > len(self.inputs):
            raise SpecError(f"{self.name} takes {len(self.inputs)} inputs, got {len(args)}", hint=self._expected())
        outputs = self.run({**dict(zip(self.inputs, args, strict=False)), **inputs})
        return outputs[self.outputs[0]] if len(outputs) == 1 else outputs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ends = f"{', '.join(self.inputs)} → {', '.join(self.outputs)}"
        return f"<OnnxModel {self.name!r} {ends}, {self.size:,} weights, on {self.device.info.name}>"

    def close(self) -> None:
        """Free the programs and weights on the device."""
        self._programs.clear()
        for key in list(self._store.keys()):
            self._store.drop(key)
        self._written.clear()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model.

        Parameters
        ----------
        inputs : an array for each input, by name

        Returns
        -------
        An array for each output, by name, of the type that the file declares.

        Raises
        ------
        ShapeError : an array has another shape or type than its input
        UnsupportedError : the graph cannot be expressed at these shapes
        """
        arrays = self._checked(inputs)
        compiled = self._program(arrays)
        values = [arrays[name].astype(np.int32 if ids else np.float32) for name, ids in compiled.takes]
        values = [v.reshape(tensor_shape(v.shape)) if v.ndim == 0 else v for v in values]
        results = [] if compiled.program is None else compiled.program.run(values)
        return self._named(compiled.outputs, results)

    def graph_for(self, shapes: Mapping[str, Shape], values: Mapping[str, Array] | None = None) -> Graph:
        """Return the engine's graph at input shapes; `values` are inputs on whose elements its structure depends."""
        work, _, outputs = self._emit(dict(shapes), dict(values or {}))
        return work.finish([o.tensor for o in outputs if o.tensor is not None])

    def time(self, inputs: Mapping[str, Any], repeats: int = 5) -> float:
        """Return the least of several measured times of `run`, in milliseconds, after one to compile."""
        self.run(inputs)
        times: list[float] = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.run(inputs)
            times.append(time.perf_counter() - start)
        return 1e3 * min(times)

    def _expected(self) -> str:
        return "inputs: " + ", ".join(f"{i.name} {i.dtype} {list(i.shape or ())}" for i in self.graph.inputs)

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        for name in inputs:
            if name not in self.inputs:
                near = suggestion(name, self.inputs)
                raise SpecError(f"{self.name} has no input {name!r}", hint=near or self._expected())
        arrays: dict[str, Array] = {}
        for declared in self.graph.inputs:
            if declared.name not in inputs:
                raise SpecError(f"{self.name} needs the input {declared.name!r}", hint=self._expected())
            arrays[declared.name] = _checked_input(declared, inputs[declared.name])
        return arrays

    def _program(self, arrays: Mapping[str, Array]) -> _Compiled:
        """Return the program for the shapes of inputs, and for the elements on which the graph depends."""
        while True:
            needed = {name: arrays[name] for name in sorted(self._needed)}
            shapes = {name: a.shape for name, a in arrays.items()}
            key = tuple(shapes.items()), tuple((name, a.tobytes()) for name, a in needed.items())
            try:
                return self._programs.get(key, partial(self._compile, shapes, needed))
            except InputsNeededError as error:
                names = error.names - self._needed
                if not names or any(arrays[name].size > MOST_KNOWN for name in names):
                    raise UnsupportedError(
                        str(error), hint="a result whose shape depends on data, or on a large input, cannot be compiled"
                    ) from None
                self._needed |= names

    def _compile(self, shapes: Mapping[str, Shape], needed: Mapping[str, Array]) -> _Compiled:
        work, ids, outputs = self._emit(shapes, needed)
        finish = [o.tensor for o in outputs if o.tensor is not None and o.array is None]
        if not finish:
            return _Compiled(None, (), tuple(outputs))
        graph = work.finish(finish)
        largest = max((t for t in graph.tensors if t.size > 0), key=lambda t: t.size, default=None)
        if largest is not None and largest.size > _LARGEST_TENSOR:
            raise UnsupportedError(
                f"{self.name} has a value of shape {list(largest.shape)}, {byte_size(4 * largest.size)}",
                hint="run it with smaller inputs",
            )
        for key in graph.tensors_by_key:
            if key not in self._written:
                self._store.write(key, self.parameters[key].astype(np.float32))
                self._written.add(key)
        split = split_constants(graph, self._written)
        for key, value in zip(split.keys, constant_values(split, self._graphs, self._store), strict=True):
            if key not in self._written:
                self._store.write(key, value)
                self._written.add(key)
        names = {i: (split.rest.tensors[i].name, i in ids) for i in split.rest.inputs}
        program = self._graphs.compile(split.rest, self._store)
        return _Compiled(program, tuple(names[i] for i in split.rest.inputs), tuple(outputs))

    def _emit(
        self, shapes: Mapping[str, Shape], needed: Mapping[str, Array]
    ) -> tuple[GraphBuilder, set[int], list[OnnxValue]]:
        work, ids = GraphBuilder(), set[int]()
        values: list[OnnxValue] = []
        for declared in self.graph.inputs:
            name, dtype = declared.name, onnx_dtype(declared.dtype or "float32")
            if name in needed:
                values.append(known_value(needed[name]))
                continue
            shape = tensor_shape(shapes[name])
            whole = None
            if is_whole(dtype):
                whole = work.input(name, shape, "int32")
                ids.add(whole)
            tensor = work.input(name, shape)
            values.append(
                OnnxValue(dtype=dtype, shape=shapes[name], tensor=tensor, ids=whole, sources=frozenset([name]))
            )
        switches = frozenset(
            name
            for name, value in zip(self.inputs, values, strict=True)
            if value.size <= _LARGEST_SWITCH and (is_whole(value.dtype) or value.dtype.kind == "b")
        )
        return work, ids, emit_onnx(work, self.graph, values, lambda p: _parameter(work, p), switches=switches)

    def _named(self, outputs: Sequence[OnnxValue], results: Sequence[Array]) -> dict[str, Array]:
        rest = iter(results)
        named: dict[str, Array] = {}
        for (name, _), value in zip(self.graph.outputs, outputs, strict=True):
            if value.array is not None:
                named[name] = value.array.copy()
                continue
            array = next(rest).reshape(value.shape)
            if is_whole(value.dtype):
                array = np.rint(array)
            named[name] = cast_array(array, value.dtype)
        return named


def _parameter(work: GraphBuilder, parameter: OnnxParameter) -> OnnxValue:
    tensor = work.stored_tensor(parameter.name, parameter.shape or (1,))
    return OnnxValue(dtype=onnx_dtype(parameter.dtype), shape=parameter.shape, tensor=tensor)


def _checked_input(declared: OnnxInput, value: Any) -> Array:
    """Return an input as an array of its type. Raises `ShapeError` if it does not fit."""
    dtype = onnx_dtype(declared.dtype or "float32")
    try:
        array = np.asarray(value)
        cast = array if array.dtype == dtype else array.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise ShapeError(f"the input {declared.name!r} is no array of {dtype.name}: {error}") from None
    if array.dtype.kind in "fc" and is_whole(dtype) and not np.array_equal(cast, array):
        raise ShapeError(f"the input {declared.name!r} needs {dtype.name}, got {array.dtype} with fractions")
    shape = declared.shape
    if shape is not None:
        fits = len(shape) == array.ndim and all(
            isinstance(n, str) or n == m for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits:
            expected = "[" + ", ".join(map(str, shape)) + "]"
            raise ShapeError(f"the input {declared.name!r} needs shape {expected}, got {list(array.shape)}")
    if is_whole(dtype) and cast.size and np.abs(cast.astype(np.float64)).max() > _LARGEST_ID:
        raise ShapeError(f"the input {declared.name!r} has integers beyond 32 bits, which no device holds")
    return cast
