"""The position of a sequence, and checks of inputs, shared by all devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import GenerationError, ShapeError, UnsupportedError
from volumetric.base.moved_modules import renamed_members
from volumetric.layers import StateSpec
from volumetric.network import INPUT
from volumetric.run.device import Constant, RowInputs
from volumetric.run.kv_value import KvValue, oldest_restorable
from volumetric.run.plan import Plan
from volumetric.run.row_dtype import as_input_dtype

_LAST_ID = 2**31 - 1
"""Kinds of NumPy dtypes without real numbers: complex numbers, text, objects, dates and times."""


def check_capacity(position: int, new: int, context: int) -> None:
    """Raise `GenerationError` unless a state with `position` of `context` rows has room for `new` more."""
    if position + new > context:
        raise GenerationError(
            f"{position} tokens in the context and {new} more do not fit its {context}",
            hint="shorten the prompt, or open the model with a larger context",
        )


def has_fixed(specs: Mapping[str, StateSpec]) -> bool:
    """Return whether any state has one value for the whole sequence."""
    return any(spec.kind == "fixed" for spec in specs.values())


def fixed_bytes(specs: Mapping[str, StateSpec]) -> int:
    """Return the bytes of the states that have one value for the whole sequence."""
    return sum(spec.size * np.dtype(spec.dtype).itemsize for spec in specs.values() if spec.kind == "fixed")


def check_trim(position: int, to: int, specs: Mapping[str, StateSpec], reach: int) -> None:
    """Raise `GenerationError` unless a state of `position` rows and this `reach` can be trimmed to `to`."""
    if not 0 <= to <= position:
        raise GenerationError(f"cannot trim a state of {position} tokens to {to}")
    if not 0 < to < reach:
        return
    fixed = next((key for key, spec in specs.items() if spec.kind == "fixed"), None)
    why = f"{fixed} has only the value after the last token"
    if fixed is None:
        why = f"rows outside of windows are freed, and the oldest restorable position is {reach}"
    raise GenerationError(
        f"cannot trim a state of {position} tokens to {to}: {why}",
        hint="fork the state at positions to return to; trim(0) resets it",
    )


@renamed_members(reach="oldest_restorable")
class SequenceState(ABC):
    """The state of one sequence, see `State`: its position and `reach`. Subclasses of devices have its memory.

    Attributes
    ----------
    specs : the plan's states by key
    position : number of tokens in the state
    """

    def __init__(self, specs: Mapping[str, StateSpec]) -> None:
        self.specs: Mapping[str, StateSpec] = specs
        self.position: int = 0
        self._reach = 0
        """`reach` of the rows passed to `fill`."""

    @property
    def forgets(self) -> bool:
        """Whether some positions can only be restored from a copy, see `State.forgets`."""
        return self._frees_windows or has_fixed(self.specs)

    @property
    def oldest_restorable(self) -> int:
        """Oldest position above 0 that `trim` can restore."""
        return self.position if has_fixed(self.specs) else max(self._reach, self._oldest_in_memory())

    def advance(self, rows: int) -> None:
        """Add the rows that a call has appended to the position."""
        self.position += rows

    def reset(self) -> None:
        """Drop all rows."""
        self.trim(0)

    def trim(self, position: int) -> None:
        """Drop all rows from `position` on; see `State.trim`."""
        check_trim(self.position, position, self.specs, self.oldest_restorable)
        self._drop_rows(position)
        self.position, self._reach = position, self._reach if position else 0

    def fork(self, position: int | None = None) -> Self:
        """Return a copy, see `State.fork`."""
        to = self.position
        if position is not None:
            check_trim(to, position, self.specs, self.oldest_restorable)
            to = position
        twin = self._copy(to)
        twin.position, twin._reach = to, self._reach if to else 0
        return twin

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.run.state_file`."""
        from volumetric.run.state_file import save_state  # imports msgspec, which only saving needs

        return save_state(self, self.specs)

    def fill(self, values: Mapping[str, KvValue], position: int) -> None:
        """Set all values of an empty state."""
        self._write(values, position)
        self.position = position
        self._reach = oldest_restorable(values, self.specs, position)

    @abstractmethod
    def read(self, key: str) -> KvValue:
        """Return the stored rows of the state `key`, or its value."""

    @abstractmethod
    def _write(self, values: Mapping[str, KvValue], position: int) -> None:
        """Write all values of a state of `position` rows to memory."""

    @abstractmethod
    def _drop_rows(self, position: int) -> None:
        """Drop rows in memory from `position` on."""

    @abstractmethod
    def _copy(self, position: int) -> Self:
        """Return a state with a copy of the first `position` rows."""

    @property
    def _frees_windows(self) -> bool:
        """Return whether memory frees rows outside of windows."""
        return False

    def _oldest_in_memory(self) -> int:
        """Return `reach` according to the rows that memory has freed."""
        return 0


def inputs_by_name(plan: Plan, x: RowInputs) -> Mapping[str, NDArray[Any]]:
    """Return the inputs of a call by name, with defaults for omitted inputs.

    Raises
    ------
    ShapeError : an input without a default is missing, or one is unknown
    """
    if isinstance(x, Mapping) and x.keys() == plan.inputs.keys():
        return {name: x[name] for name in plan.inputs}
    left_out = {name for name, i in plan.inputs.items() if plan.values[i].default is not None}
    if not isinstance(x, Mapping):
        if len(plan.inputs) > 1 + len(left_out):
            raise ShapeError(
                f"the network has the inputs {', '.join(plan.inputs)}, got one array", hint="pass arrays by name"
            )
        x = {INPUT: x}
    left_out -= x.keys()
    missing = [name for name in plan.inputs if name not in x and name not in left_out]
    unknown = [str(name)[:64] for name in x if name not in plan.inputs]
    if missing or unknown:
        difference = "nothing for " + ", ".join(missing) if missing else "also " + ", ".join(unknown)
        raise ShapeError(f"the network has the inputs {', '.join(plan.inputs)}, got {difference}")
    return {name: x[name] if name in x else _default(plan, name, np.shape(x[INPUT])) for name in plan.inputs}


def _default(plan: Plan, name: str, beside: Shape) -> NDArray[Any]:
    """Return the default of an omitted input, with as many rows as ``"input"`` of a shape has."""
    value, own = plan.values[plan.inputs[name]], len(plan.values[plan.inputs[INPUT]].shape) - 1
    return np.full((*beside[: max(len(beside) - own, 1)], *value.shape[1:]), value.default, value.dtype)


def check_inputs(plan: Plan, x: RowInputs) -> dict[str, NDArray[Any]]:
    """Return the rows of all inputs, in the plan's order and dtypes.

    Raises
    ------
    ShapeError : an input is missing or unknown, rows do not match it, or inputs have different numbers of rows
    GenerationError : an id is negative, or larger than int32
    """
    inputs = inputs_by_name(plan, x)
    rows = {name: check_input(plan, inputs[name], name) for name in plan.inputs}
    if len({len(one) for one in rows.values()}) > 1:
        counts = ", ".join(f"{len(one)} of {name}" for name, one in rows.items())
        raise ShapeError(f"all inputs of a call need the same number of rows, got {counts}")
    return rows


def check_tokens(plan: Plan, tokens: Sequence[int], constant: Constant | None = None) -> dict[str, NDArray[Any]]:
    """Return the inputs of greedy decoding other than ids, for one token of each sequence.

    Raises
    ------
    UnsupportedError : the network reads inputs other than token ids and those in `constant`
    GenerationError : a token is outside of the vocabulary
    ShapeError : `constant` does not match the network's inputs
    """
    more, ids = constant or {}, np.array(tokens)
    needed = [name for name, i in plan.inputs.items() if plan.values[i].default is None and name not in more]
    if needed not in ([INPUT], []):
        raise UnsupportedError(
            f"greedy decoding feeds only token ids; the network has the inputs {', '.join(plan.inputs)}",
            hint="use Executable.run",
        )
    if plan.values[plan.inputs[INPUT]].dtype != "int32":
        raise UnsupportedError("greedy decoding needs a network that reads token ids", hint="use Executable.run")
    inputs = check_inputs(plan, {**more, INPUT: ids})
    check_vocabulary(plan, inputs.pop(INPUT))
    return inputs


def check_input(plan: Plan, x: NDArray[Any], name: str = INPUT) -> NDArray[Any]:
    """Return `x` in the dtype of one of the plan's inputs; raise `ShapeError` if it does not match the input."""
    value = plan.values[plan.inputs[name]]
    who = "the network" if name == INPUT else f"the input {name}"
    x = np.asarray(x)
    if x.ndim != len(value.shape) or x.shape[1:] != value.shape[1:]:
        axes = ", ".join(["T", *map(str, value.shape[1:])])
        raise ShapeError(
            f"{who} reads {value.dtype} [{axes}], got an array of shape {x.shape}", hint=_shape_hint(value.shape[1:], x)
        )
    if x.shape[0] == 0:
        raise ShapeError(f"{who} needs at least one row of input, got none")
    if x.dtype.kind not in ("iu" if value.dtype == "int32" else "fbV"):
        x = as_input_dtype(x, value.dtype, who)
    if value.dtype == "int32" and x.size and (x.min() < 0 or (x.dtype != np.int32 and x.max() > _LAST_ID)):
        raise GenerationError(f"token ids must be in 0 … {_LAST_ID}, got {int(x.min())} to {int(x.max())}")
    return np.ascontiguousarray(x, value.dtype)


def _shape_hint(expected: Shape, x: NDArray[Any]) -> str | None:
    """Return a hint for converting an array to the expected axes, if there is an obvious way."""
    if x.shape == expected:
        return "pass one row as x[None]"
    if x.ndim == 1 and expected == (1,):
        return "pass one feature per row as x[:, None]"
    if x.ndim == 2 and x.shape == (*expected, x.shape[1]) and x.shape[1] != expected[0]:
        return "rows come first: x.T"
    if x.ndim > 1 and int(np.prod(x.shape[1:])) == int(np.prod(expected)):
        return f"flatten the rows: x.reshape({', '.join(map(str, (-1, *expected)))})"
    if x.ndim == len(expected) + 1 and expected:
        return f"rows have {x.shape[-1]} features, the network expects {expected[-1]}"
    return None


def check_vocabulary(plan: Plan, ids: NDArray[np.int32], name: str = INPUT) -> None:
    """Raise `GenerationError` if an embedding that reads an input of the plan has no row for an id."""
    for step in plan.steps:
        if step.op != "embedding" or step.inputs[0] != plan.inputs[name]:
            continue
        vocabulary = step.attrs["spec"].num_embeddings
        if int(ids.max()) >= vocabulary:
            at = int(ids.argmax())
            raise GenerationError(
                f"token id {int(ids[at])} at position {at} is outside of the vocabulary of {vocabulary}",
                hint="use the tokenizer of this model",
            )
