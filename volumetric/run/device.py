"""Devices run plans: the protocols that every device implements."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, get_args, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import GenerationError, SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.base.notebook_html import ShowsFields
from volumetric.dtypes.type_choice import check_type_choice
from volumetric.network import OUTPUT, Params
from volumetric.run.plan import Plan
from volumetric.run.step_times import StepTime

DeviceKind = Literal["reference", "cpu", "gpu"]

OutputRows = Literal["last", "all", "none"]
"""Which rows of a sequence have an output."""

RowInputs: TypeAlias = NDArray[Any] | Mapping[str, NDArray[Any]]
"""Rows of a plan's only input, or of all inputs by name, the same number for each."""

Constant: TypeAlias = Mapping[str, NDArray[Any]]
"""Rows of inputs other than token ids that are constant during decoding: a row for each sequence, by name."""

RowOutputs: TypeAlias = NDArray[np.float32] | Mapping[str, NDArray[np.float32]]
"""Rows of a plan's only output, or of the requested outputs by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo(ShowsFields):
    """The data that `volumetric devices` prints about one device."""

    name: str  # the name that opens it: "cpu", "gpu:0"
    kind: DeviceKind
    description: str  # "AMD EPYC, 2 threads, AVX-512 VNNI BF16"
    software: bool = False  # a software GPU adapter; never chosen by "auto"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a device for running a plan.

    Attributes
    ----------
    context : maximum number of tokens in a state
    compute : dtype that activations are rounded to before products: ``"float32"`` (no rounding), ``"int8"`` (for
        integer weights, in blocks of 32, like llama.cpp), ``"bfloat16"`` (CPU: like ``"int8"``, and bfloat16 for
        bfloat16 weights where it gains from it), ``"float16"`` (GPU: many rows and weights of up to 16 bits meet as
        float16 with float32 sums, see docs/numbers.md), or ``"auto"``: the fastest of these on the device
    kv_dtype : storage of the KV cache: ``"float32"``, ``"float16"``, ``"int8"`` (CPU; a float32 scale for each head of
        each token), or ``"auto"``: the device's choice
    threads : CPU threads; None means the physical cores that the process may use
    """

    context: int = 2048
    compute: Literal["auto", "float32", "float16", "int8", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "float16", "int8"] = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Reject values that a device would otherwise treat as its default. Raises `SpecError`."""
        for name in ("compute", "kv_dtype"):
            check_type_choice(name, getattr(self, name), get_args(get_type_hints(RunOptions)[name]))
        for name in ("context", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} must be at least 1, got {value!r}", hint=f"leave {name} out for its default")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(ShowsFields):
    """Bytes that an executable uses on its device.

    Attributes
    ----------
    weights : bytes of parameters
    scratch : bytes of buffers shared by calls
    state_per_token : bytes of a sequence per token; layers with a window take no more once the sequence is longer
    state_fixed : additional bytes of a sequence, independent of its length
    block : granularity of a state in tokens: a shrunk state holds a multiple of it
    """

    weights: int
    scratch: int
    state_per_token: int
    state_fixed: int = 0
    block: int = 1


class State(Protocol):
    """The state of one sequence: its position, and the values of the states that the plan's steps declare."""

    @property
    def position(self) -> int:
        """Number of tokens in the state."""
        ...

    @property
    def oldest_restorable(self) -> int:
        """Oldest position above 0 that `trim` can restore; 0 if it can restore all."""
        ...

    @property
    def forgets(self) -> bool:
        """Whether `reach` may rise as rows are appended, so that earlier positions can only be restored from a copy."""
        ...

    def reset(self) -> None:
        """Drop all tokens."""
        ...

    def trim(self, position: int) -> None:
        """Drop all tokens from `position` on.

        States of rows, such as keys and values, are truncated. Fixed states, such as those of recurrent layers, have
        only the value after the last token: a plan with fixed states can be trimmed only to its current position or
        to 0. If a device frees rows outside of all windows, `reach` is the oldest position. To return to any other
        position, `fork` there.

        Raises
        ------
        GenerationError : `position` is beyond the end, or below `reach` and not 0; nothing has changed
        """
        ...

    def fork(self, position: int | None = None) -> State:
        """Return a copy of all tokens or of the first `position`; both continue independently.

        Raises
        ------
        GenerationError : `trim` cannot restore `position`
        """
        ...

    def shrink_to_fit(self) -> None:
        """Free unused memory, for a state that is stored for later and need not grow."""
        ...

    def save(self) -> bytes:
        """Return the state as bytes for `Executable.restore`, on this device or another.

        They have the stored values in their stored precision. The format: `volumetric.run.state_file`.
        """
        ...


@renamed_members(True, wanted="output_rows")
@dataclass(frozen=True, slots=True, eq=False)
class SequenceRows:
    """The rows of one sequence in a call, which may have rows of other sequences.

    Attributes
    ----------
    state : a state of the executable that runs the call
    x : token ids, int32 ``[T]``, or features, float32 ``[T, …]``, as the plan's input requires; T is at least 1. For a
        plan with several inputs, a mapping by name
    output_rows : rows whose output is computed: the last, all, or none, such as for a prompt that continues
    outputs : names of the requested outputs; None: all of the plan. Steps after the last requested output of a call are
        skipped
    """

    state: Any
    x: RowInputs
    output_rows: OutputRows = "last"
    outputs: tuple[str, ...] | None = None


def output_of(outputs: RowOutputs, name: str = OUTPUT) -> NDArray[np.float32]:
    """Return one output from the result of a sequence."""
    return outputs[name] if isinstance(outputs, Mapping) else outputs


class Executable(Protocol):
    """A plan bound to resident weights on one device."""

    @property
    def options(self) -> RunOptions:
        """Options that it was compiled with."""
        ...

    @property
    def memory(self) -> MemoryReport:
        """Bytes used on the device."""
        ...

    def new_state(self) -> State:
        """Return an empty state."""
        ...

    def restore(self, data: bytes) -> State:
        """Return the state that was saved as `data` by any device with these weights.

        It continues bit for bit on the device and with the options that saved it; otherwise its values are converted to
        the types of this executable.

        Raises
        ------
        CheckpointError : the bytes are damaged, of a later version, or of a network with other states
        GenerationError : the context is too short for its rows
        """
        ...

    def run(self, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
        """Append the rows of each sequence to its state, all in one call, each at the position of its sequence.

        Prefill, chunked prefill next to decoding sequences, batches and the verification of draft tokens all use this
        call. The weights are read once for all rows if the device can. Sequences may join and leave between calls.

        Returns
        -------
        One new float32 array for each sequence, ``[1, …]``, ``[T, …]`` or ``[0, …]`` depending on
        `SequenceRows.wanted`; the caller owns it. For a plan with several outputs, a mapping from the name of each
        requested output to its array. An intermediate output has the same rows as a final one

        Raises
        ------
        GenerationError : a state is passed twice or has no room for its rows, or a token id is outside of the
            vocabulary; no state has changed then
        ShapeError : the call is empty, or rows do not match the plan's inputs; no state has changed then
        SpecError : an unknown output is requested; no state has changed then
        """
        ...

    def forward(self, state: Any, x: RowInputs, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output ``"output"`` for the last row, or for all rows.

        Use `run` for other outputs.

        Parameters
        ----------
        state : a state of this executable, see `new_state`
        x : token ids, int32 ``[T]``, or features, float32 ``[T, D]``, as the plan's input requires; or these by name
        last_only : compute the tail of the plan for the last row only

        Returns
        -------
        float32 ``[1, …]`` or ``[T, …]``; a new array that the caller owns

        Raises
        ------
        GenerationError : the state's context cannot hold T more tokens
        ShapeError : `x` does not match the plan's inputs
        """
        ...

    def greedy(
        self, states: Sequence[Any], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed a token to each of `states`, yield the arg max of each, feed those, and so on, without end.

        The arg max is that of the output ``"output"``; others are not computed. `constant` has the inputs other than
        ids, a row for each state, the same in every step; inputs with a default may be omitted.

        When the iterator is closed, each state's `position` counts exactly the tokens fed for the ids already yielded,
        plus one if the logits after it were rejected.

        Raises
        ------
        GenerationError : logits hold NaN or +inf, or are all -inf; the context is full
        UnsupportedError : the network reads inputs other than token ids and those in `constant`
        """
        ...

    def step_times(self, states: Sequence[Any], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Measure the time of each step of a call that adds `rows` rows to each of `states`.

        The last entry, labelled `volumetric.run.step_times.WHOLE`, is the whole call. Positions are unchanged; stored
        rows may be overwritten.

        Raises
        ------
        UnsupportedError : the device cannot measure steps
        """
        ...

    def close(self) -> None:
        """Free the device's memory; the executable cannot be used afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitAdjustments:
    """Changes to the scores of a row before sampling; each operation is rounded to float32.

    Attributes
    ----------
    ids : tokens whose scores change, int32 ``[N]``, without duplicates
    bias : added first, float32 ``[N]``
    recent : bool ``[N]``; these scores are then divided by `repetition` if they are positive, else multiplied by it
    less : subtracted last, float32 ``[N]``
    """

    ids: NDArray[np.int32]
    bias: NDArray[np.float32]
    recent: NDArray[np.bool_]
    less: NDArray[np.float32]
    repetition: float


class TokenSampler(Protocol):
    """The sampler of a sequence: temperature, then top-k, top-p and min-p, and one random number for each token.

    Attributes
    ----------
    temperature, top_k, top_p, min_p : see `volumetric.generate.SamplingParams`
    adjusted : whether scores change before sampling, see `adjustments`
    """

    adjusted: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float

    def next_randoms(self, count: int) -> Sequence[float]:
        """Return the numbers in [0, 1) of the next draws without consuming them."""
        ...

    def adjustments(self) -> LogitAdjustments:
        """Return how scores change before the next draw."""
        ...

    def record_token(self, token: int) -> None:
        """Consume one number, and record the token."""
        ...

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Sample a token from logits, float32 ``[V]``, and consume one number."""
        ...


@runtime_checkable
class TokenSampling(Protocol):
    """An executable that samples tokens on the device, so that logits need not be copied to the host."""

    @property
    def can_pick(self) -> bool:
        """Whether `pick` supports this network."""
        ...

    def can_sample(self, choosers: Sequence[TokenSampler | None]) -> bool:
        """Return whether it can sample the tokens of these sequences together; None stands for the arg max."""
        ...

    def sample_loop(
        self,
        states: Sequence[Any],
        tokens: Sequence[int],
        choosers: Sequence[TokenSampler | None],
        constant: Constant | None = None,
    ) -> Generator[list[int]]:
        """Like `Executable.greedy`, but sample tokens as `TokenSampler.choose` does from the same logits.

        Each yielded token has consumed one number of its sequence.
        """
        ...

    def sample(
        self, pieces: Sequence[SequenceRows], choosers: Sequence[TokenSampler | Literal["logits"] | None]
    ) -> list[int | NDArray[np.float32] | GenerationError | None]:
        """Like `Executable.run` for sequences that request their last row or none, but sample tokens from its logits.

        Returns
        -------
        For each sequence the token, which has consumed one number, or the error for logits that allow no choice; the
        logits, float32 ``[V]``, if they are requested or the host must sample; None if the sequence requests no row
        """
        ...


class Device(Protocol):
    """Compiles plans."""

    @property
    def info(self) -> DeviceInfo:
        """The data that `volumetric devices` prints."""
        ...

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> Executable:
        """Bind `plan` (of `lower`) to resident copies of `params`; `options` default to `RunOptions()`."""
        ...
