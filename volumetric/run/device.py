"""Devices: where a plan runs. The protocols that every device implements, and how one is opened by name."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, get_args, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import GenerationError, SpecError
from volumetric.network import OUTPUT, Params
from volumetric.run.plan import Plan
from volumetric.run.profile import StepTime

DeviceKind = Literal["reference", "cpu", "gpu"]

Wanted = Literal["last", "all", "none"]
"""Which rows of a piece have an output."""

Given: TypeAlias = NDArray[Any] | Mapping[str, NDArray[Any]]
"""Rows of a plan's only input, or of all its inputs by name; as many of each."""

Constant: TypeAlias = Mapping[str, NDArray[Any]]
"""Rows of inputs beside token ids that stay the same while tokens are decoded: a row for each sequence, by name."""

Found: TypeAlias = NDArray[np.float32] | Mapping[str, NDArray[np.float32]]
"""Rows of a plan's only output, or of those of its outputs that were asked for, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What `volumetric devices` prints about one device."""

    name: str  # the spelling that opens it: "cpu", "gpu:0"
    kind: DeviceKind
    description: str  # "AMD EPYC, 2 threads, AVX-512 VNNI BF16"
    software: bool = False  # a software GPU adapter; never chosen by "auto"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a device is to run a plan.

    Attributes
    ----------
    context : tokens that a state can hold
    compute : what activations are rounded to before products: ``"float32"`` (nothing is rounded), ``"int8"`` (where
        weights are integers, in blocks of 32, as llama.cpp), ``"bfloat16"`` (also to bfloat16 where weights are
        bfloat16 and a device gains from it), or ``"auto"``: the device's fast choice among the first two
    kv_dtype : storage of the KV cache: ``"float32"``, ``"float16"``, ``"int8"`` (CPU; a float32 scale for each head of
        each token), or ``"auto"``: the device's choice
    threads : CPU threads; None means the physical cores that the process may use
    """

    context: int = 2048
    compute: Literal["auto", "float32", "int8", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "float16", "int8"] = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that a device would otherwise take for its default. Raises `SpecError`."""
        for name in ("compute", "kv_dtype"):
            value, known = getattr(self, name), get_args(get_type_hints(RunOptions)[name])
            if value not in known:
                raise SpecError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        for name in ("context", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} must be at least 1, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes that an executable keeps on its device.

    Attributes
    ----------
    weights : of parameters
    scratch : of what calls share
    state_per_token : that a sequence takes for each token until it is longer than the windows of layers that have one;
        from then on these take no more
    state_fixed : that a sequence takes beside them, however many tokens it has
    block : tokens of which a state that has no room to grow holds a multiple
    """

    weights: int
    scratch: int
    state_per_token: int
    state_fixed: int = 0
    block: int = 1


class State(Protocol):
    """What one sequence leaves behind: its position, and the values of the states that the plan's steps declare."""

    @property
    def position(self) -> int:
        """Tokens held so far."""
        ...

    @property
    def reach(self) -> int:
        """First position beyond 0 to which `trim` goes back; 0 where it goes everywhere."""
        ...

    @property
    def forgets(self) -> bool:
        """Whether `reach` may rise as rows come, so that only a copy leads back to an earlier place."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on.

        States of rows, as keys and values, are cut back. Fixed states, as those of recurrent layers, have one value,
        that after the last token: a plan that has any is trimmed to its present position or to 0 alone. Where a device
        gives rows back that lie behind the windows of all layers that had them, the way back ends at `reach`. To come
        back to any other place, `fork` there.

        Raises
        ------
        GenerationError : `position` is beyond the end, or before `reach` and not 0; nothing has changed
        """
        ...

    def fork(self, position: int | None = None) -> State:
        """Copy, of all tokens or of the first `position`; both continue independently.

        Raises
        ------
        GenerationError : `trim` does not go back to `position`
        """
        ...

    def shrink_to_fit(self) -> None:
        """Give memory back that nothing is held in: what is kept for later needs no room to grow."""
        ...

    def save(self) -> bytes:
        """Return the state as bytes that `Executable.restore` takes, on this device or another.

        Only what is held is in them, in the precision in which it is held. The format: `volumetric.run.state_file`.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that one sequence adds in a call which it may share with other sequences.

    Attributes
    ----------
    state : of the executable that runs the call
    x : token ids, int32 ``[T]``, or features, float32 ``[T, …]``, as the plan's input asks; T is at least 1. Where the
        plan has several inputs, those by name
    wanted : rows of which the output is computed: the last one, all, or none, as of a prompt that goes on
    outputs : names of the outputs that are handed back; None: all that the plan has. What comes behind the last of
        those that a call asks for is not computed
    """

    state: Any
    x: Given
    wanted: Wanted = "last"
    outputs: tuple[str, ...] | None = None


def output_of(outputs: Found, name: str = OUTPUT) -> NDArray[np.float32]:
    """Return one output of what a piece was handed back."""
    return outputs[name] if isinstance(outputs, Mapping) else outputs


class Executable(Protocol):
    """A plan bound to resident weights on one device."""

    @property
    def options(self) -> RunOptions:
        """What it was compiled with."""
        ...

    @property
    def memory(self) -> MemoryReport:
        """Bytes kept on the device."""
        ...

    def new_state(self) -> State:
        """Return an empty state."""
        ...

    def restore(self, data: bytes) -> State:
        """Return a state that goes on where the one went that `data` was saved of, by any device with these weights.

        On the device and with the options that saved it, bit for bit; elsewhere its numbers are converted to what is
        held here.

        Raises
        ------
        CheckpointError : the bytes are damaged, of a later version, or of a network with other states
        GenerationError : the context here is too short for its rows
        """
        ...

    def run(self, pieces: Sequence[Piece]) -> list[Found]:
        """Append the rows of each piece to its state; all pieces in one call, each at the position of its sequence.

        Prompts, parts of prompts beside sequences that decode, batches and the check of drafted tokens are all this
        call. The weights are read once for all rows, where the device can. Sequences may join and leave from call to
        call.

        Returns
        -------
        One float32 array for each piece, ``[1, …]``, ``[T, …]`` or ``[0, …]`` as it wants; fresh, the caller owns them.
        Where the plan has several outputs, a mapping of those that the piece wants: name → such an array. An output
        in the middle of a plan has the same rows as one at its end

        Raises
        ------
        GenerationError : a state is named twice or has no room for its rows, or a token id is outside of the
            vocabulary; no state has changed then
        ShapeError : there is no piece, or rows are not what the plan's inputs say; no state has changed then
        SpecError : a piece names an output that the plan does not have; no state has changed then
        """
        ...

    def forward(self, state: Any, x: Given, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output ``"output"`` for the last row, or for all of them.

        `run` gives other outputs.

        Parameters
        ----------
        state : made by this executable's `new_state`
        x : token ids, int32 ``[T]``, or features, float32 ``[T, D]``, as the plan's input asks, or such by name
        last_only : compute the tail of the plan for the last row alone

        Returns
        -------
        float32 ``[1, …]`` or ``[T, …]``; a fresh array that the caller owns

        Raises
        ------
        GenerationError : the state's context cannot hold T more tokens
        ShapeError : `x` is not what the plan's inputs say
        """
        ...

    def greedy(
        self, states: Sequence[Any], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed a token to each of `states`, yield the arg max of each, feed those, and so on, without end.

        The arg max is that of the output ``"output"``; others are not computed. Inputs beside the ids are what
        `constant` has, a row for each state, in every step; those that have a default may be left out.

        When the iterator is closed, each state's `position` counts exactly the tokens fed for the ids already yielded;
        and one more where the logits after it were refused.

        Raises
        ------
        GenerationError : logits hold NaN or +inf, or are all -inf; the context is full
        UnsupportedError : the network reads something else than token ids and what `constant` has
        """
        ...

    def step_times(self, states: Sequence[Any], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Measure where the time of a call goes that adds `rows` rows to each of `states`.

        The last entry, labelled `volumetric.run.profile.WHOLE`, is the call in one piece. Positions stay, the rows
        held may be overwritten.

        Raises
        ------
        UnsupportedError : the device cannot tell
        """
        ...

    def close(self) -> None:
        """Give the device's memory back; the executable cannot be used any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustments:
    """How scores of a row change before its draw; each operation is rounded to float32.

    Attributes
    ----------
    ids : tokens whose scores change, int32 ``[N]``, each once
    bias : what is added first, float32 ``[N]``
    recent : bool ``[N]``; such scores are then divided by `repetition` if they are positive, else multiplied with it
    less : what is taken off last, float32 ``[N]``
    """

    ids: NDArray[np.int32]
    bias: NDArray[np.float32]
    recent: NDArray[np.bool_]
    less: NDArray[np.float32]
    repetition: float


class Chooser(Protocol):
    """How the tokens of a sequence are drawn: by a temperature, then top-k, top-p and min-p, and one number each.

    Attributes
    ----------
    temperature, top_k, top_p, min_p : as `volumetric.generate.SamplingParams` has them
    adjusted : whether scores change before, as `adjustments` tells
    """

    adjusted: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float

    def ahead(self, count: int) -> Sequence[float]:
        """Return the numbers in [0, 1) of the next draws; they stay the next ones."""
        ...

    def adjustments(self) -> Adjustments:
        """Return how scores change before the next draw."""
        ...

    def drawn(self, token: int) -> None:
        """Go on to the next number, and remember the token."""
        ...

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Draw a token by its logits, float32 ``[V]``, and go on to the next number."""
        ...


@runtime_checkable
class Drawing(Protocol):
    """An executable that draws tokens where it computes their logits, which then need not leave it."""

    @property
    def picks(self) -> bool:
        """Whether `pick` serves this network."""
        ...

    def draws(self, choosers: Sequence[Chooser | None]) -> bool:
        """Whether it can draw the tokens of such sequences together; None stands for the arg max."""
        ...

    def drawn(
        self,
        states: Sequence[Any],
        tokens: Sequence[int],
        choosers: Sequence[Chooser | None],
        constant: Constant | None = None,
    ) -> Generator[list[int]]:
        """As `Executable.greedy`, with tokens drawn: those that `Chooser.choose` would draw of the same logits.

        Each token yielded has used one number of its sequence.
        """
        ...

    def pick(
        self, pieces: Sequence[Piece], choosers: Sequence[Chooser | Literal["logits"] | None]
    ) -> list[int | NDArray[np.float32] | GenerationError | None]:
        """As `Executable.run` of pieces that want their last row or none, with tokens drawn by its logits.

        Returns
        -------
        of each piece the token, which has used a number of its sequence, or the error for logits that allow no choice;
        the logits, float32 ``[V]``, where these are asked for or the tokens must be drawn by the host; None where the
        piece wants none
        """
        ...


class Device(Protocol):
    """Compiles plans."""

    @property
    def info(self) -> DeviceInfo:
        """What `volumetric devices` prints."""
        ...

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> Executable:
        """Bind `plan` (as `lower` wrote it) to resident copies of `params`, with default options unless given."""
        ...
