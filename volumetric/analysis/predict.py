"""Outputs of a network for many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from volumetric.analysis.standardise import Standardisation
from volumetric.base._typing import Array, F32Array
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ArgumentError, ShapeError, SpecError
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.dtypes import DType, Scheme
from volumetric.network import INPUT, OUTPUT, Network, check_params
from volumetric.network.weight_store import Params
from volumetric.run import Plan, RunOptions, lower
from volumetric.run.device import Executable, SequenceRows, output_of
from volumetric.run.lower import mixing_step
from volumetric.run.plan import DELAYS, Value
from volumetric.run.row_dtype import as_input_dtype
from volumetric.run.sequence_state import inputs_by_name

Given: TypeAlias = ArrayLike | Mapping[str, ArrayLike]
"""Array for a network with one input, or arrays of all its inputs by name."""

BATCH = 256
"""Rows computed at a time."""
TOGETHER = 16
"""Maximum number of sequences in one call: 64 save little time on a CPU, and take llvmpipe twice as long."""
_TOGETHER_ROWS = 1 << 14
"""Maximum number of rows in a call of several sequences."""
_TOGETHER_BYTES = 64 << 20
"""Maximum bytes of state, such as KV cache, of all sequences in a call beyond the first."""


@overload
def predict(
    network: Network,
    params: Params | Mapping[str, ArrayLike],
    inputs: Given,
    *,
    device: AnyDevice = "auto",
    dtype: str | DType | Scheme | None = None,
    batch_size: int = BATCH,
    outputs: None = None,
) -> F32Array: ...
@overload
def predict(
    network: Network,
    params: Params | Mapping[str, ArrayLike],
    inputs: Given,
    *,
    device: AnyDevice = "auto",
    dtype: str | DType | Scheme | None = None,
    batch_size: int = BATCH,
    outputs: Sequence[str],
) -> dict[str, F32Array]: ...
@explain_call_errors
def predict(
    network: Network,
    params: Params | Mapping[str, ArrayLike],
    inputs: Given,
    *,
    device: AnyDevice = "auto",
    dtype: str | DType | Scheme | None = None,
    batch_size: int = BATCH,
    outputs: Sequence[str] | None = None,
) -> F32Array | dict[str, F32Array]:
    """Return the output ``"output"`` for `inputs`, samples first; or the outputs in `outputs`, by name.

    Each call compiles the network anew; a model from `volumetric.load` keeps the compiled network.

    Parameters
    ----------
    params : weights of the network, or arrays by the same keys
    inputs : rows ``[samples, …]``, computed `batch_size` at a time; or sequences ``[samples, T, …]``, each of which
        begins with an empty state; a call computes several. If a layer reads earlier rows, for example a recurrent
        layer, rows without an axis of samples are one sequence. For a network with several inputs: these arrays by
        name.
    device : name of a device, as in `volumetric.open_device`, or an open device
    dtype : numeric type to convert a copy of the weights to; None uses the weights as they are
    outputs : names of outputs; only layers that these need are computed

    Raises
    ------
    ShapeError
        `inputs` does not have the shape of the network's input, or has no sample.
    SpecError
        The network has no such output.
    CheckpointError
        `params` are not those of the network.
    """
    if not isinstance(params, Mapping):
        is_result = hasattr(params, "params")
        raise ArgumentError(
            f"predict: expected weights, got {type(params).__name__}",
            hint="pass result.params, or call result.predict(inputs)"
            if is_result
            else "call predict(network, params, inputs), with params of initialise(network), train(…) or load(…)",
        )
    plan = lower(network)
    params = Params.of(params)
    check_params(network, params)
    calls = _BatchedCalls(plan, inputs, batch_size)
    opened = open_device(device)
    if dtype is not None:
        params = Params({key: store.copy() for key, store in params.items()})
        network.morph(params, dtype)
    executable = opened.compile(plan, params, RunOptions(context=calls.rows, compute="float32"))
    try:
        return calls.run(executable, outputs)
    finally:
        executable.close()


def predict_on(
    executable: Executable,
    plan: Plan,
    inputs: Given,
    scaling: Standardisation | None = None,
    *,
    batch_size: int = BATCH,
    outputs: Sequence[str] | None = None,
) -> F32Array | dict[str, F32Array]:
    """Return the result of `predict` from a compiled network, for inputs that `scaling` standardises.

    `scaling` standardises the input ``"input"``.

    Raises
    ------
    ShapeError
        As for `predict`; or a sequence is longer than the executable's context.
    """
    context = executable.options.context
    calls = _BatchedCalls(plan, inputs, min(batch_size, context), scaling)
    if calls.rows > context:
        raise ShapeError(
            f"a sequence has {calls.rows} rows, but the context holds only {context}",
            hint=f"open the model with context={calls.rows}, or shorten the sequences",
        )
    return calls.run(executable, outputs)


class _BatchedCalls:
    """The calls that inputs are split into, each from an empty state."""

    def __init__(
        self,
        plan: Plan,
        inputs: Given,
        batch_size: int,
        scaling: Standardisation | None = None,
    ) -> None:
        if batch_size < 1:
            raise SpecError(f"batch_size must be at least 1, got {batch_size}")
        named = inputs if isinstance(inputs, Mapping) else {INPUT: inputs}
        arrays = inputs_by_name(plan, {name: _numbers(x) for name, x in named.items()})
        if scaling is not None:
            arrays = {**arrays, INPUT: scaling.apply(arrays[INPUT])}
        values = {name: plan.values[i] for name, i in plan.inputs.items()}
        x = {name: _with_input_axes(value, arrays[name]) for name, value in values.items()}
        many = {name: x[name].ndim == len(value.shape) + 1 for name, value in values.items()}
        samples = {len(one) for one in x.values()}
        if len(samples) > 1 or len(set(many.values())) > 1:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in x.items())
            raise ShapeError(f"all inputs of a network must have the same number of samples, got {shapes}")
        own, count = len(values[INPUT].shape), samples.pop()
        self.sequences = many[INPUT]
        mixing = mixing_step(plan)
        whole = not self.sequences and mixing is not None and (own <= 2 or mixing.op in DELAYS)  # one sequence
        size = count if whole else batch_size
        ends = [(i, i + 1) for i in range(count)] if self.sequences else [(i, i + size) for i in range(0, count, size)]
        parts = ({name: one[start:stop] for name, one in x.items()} for start, stop in ends)
        self.parts = [{n: one[0] for n, one in part.items()} if self.sequences else part for part in parts]

    @property
    def rows(self) -> int:
        """Number of rows of the longest call."""
        return max(len(part[INPUT]) for part in self.parts)

    def run(self, executable: Executable, names: Sequence[str] | None) -> F32Array | dict[str, F32Array]:
        """Return the joined rows of all calls: of each output in `names`, or of the main output if None."""
        together = self._sequences_per_call(executable) if self.sequences else 1
        if isinstance(names, str) or (names is not None and not names):
            raise SpecError(f"outputs={names!r} is not a list of names", hint='for example ["output"]')
        output_names = (OUTPUT,) if names is None else tuple(dict.fromkeys(names))
        states = [executable.new_state() for _ in range(together)]
        rows_by_output: dict[str, list[F32Array]] = {name: [] for name in output_names}
        for start in range(0, len(self.parts), together):
            parts = self.parts[start : start + together]
            for state in states:
                state.reset()
            pieces = [
                SequenceRows(state, part, "all", output_names) for state, part in zip(states, parts, strict=False)
            ]
            for outputs in executable.run(pieces):
                for name, rows in rows_by_output.items():
                    rows.append(output_of(outputs, name))
        joined = {
            name: np.stack(rows) if self.sequences else np.concatenate(rows) for name, rows in rows_by_output.items()
        }
        return joined[OUTPUT] if names is None else joined

    def _sequences_per_call(self, executable: Executable) -> int:
        """Number of sequences in a call: all have the same length."""
        memory = executable.memory
        state_bytes = memory.state_fixed + memory.state_per_token * self.rows
        return max(
            1, min(TOGETHER, len(self.parts), _TOGETHER_ROWS // self.rows, _TOGETHER_BYTES // max(state_bytes, 1))
        )


def _numbers(inputs: ArrayLike) -> Array:
    """Return `inputs` as an array of numbers."""
    try:
        x = np.asarray(inputs)
    except ValueError:
        raise ShapeError("the samples have different shapes", hint="call predict once for each length") from None
    if x.dtype.kind not in "biuf":
        raise ShapeError(
            f"inputs must be numbers, got {'text' if x.dtype.kind in 'US' else x.dtype}",
            hint="pass an array of numbers [samples, features]; a language model generates: load(…).generate(text)",
        )
    return x


def _with_input_axes(value: Value, x: Array) -> Array:
    """Return `x` with the axes of the input; flattened samples are reshaped.

    Numbers of another type are converted if none changes, see `as_input_dtype`.
    """
    x = as_input_dtype(x, value.dtype, "the network")
    row_shape = value.shape[1:]
    reads = ", ".join(map(str, ("samples", *row_shape)))
    if x.ndim == 0 or not len(x):
        raise ShapeError(
            f"the network reads [{reads}], got shape {x.shape} without samples", hint="pass at least one sample"
        )
    if len(row_shape) > 1 and x.ndim == 2 and x.shape[1] == np.prod(row_shape):
        return x.reshape(len(x), *row_shape)
    if x.shape[1:] == row_shape or (x.ndim == len(row_shape) + 2 and x.shape[2:] == row_shape):
        return x
    one = x.shape == row_shape
    raise ShapeError(
        f"the network reads [{reads}], or sequences [samples, T{reads.removeprefix('samples')}], got shape {x.shape}",
        hint="add an axis to a single sample: x[None]"
        if one
        else f"pass one row for each sample, x[:, :{row_shape[-1]}] if these columns are its inputs"
        if len(row_shape) == 1 and x.ndim == 2 and x.shape[1] > row_shape[0]
        else f"pass an array of shape ({reads.replace('samples', 'n')})",
    )
