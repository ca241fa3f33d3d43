"""Executables with adapters: sequences with and without adapters share calls, and the weights are stored once.

A state names the adapters of its sequence; a call takes rows of sequences with different adapters. Calls without any
adapter run the plan of the model itself, so unused adapters cost nothing. On the CPU both plans give a row without
adapters the same bits, and the results of a row with adapters are batch-invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import SpecError
from volumetric.network import INPUT, OUTPUT, Params
from volumetric.run.device import (
    Constant,
    Executable,
    MemoryReport,
    RowInputs,
    RowOutputs,
    RunOptions,
    SequenceRows,
    State,
    TokenSampler,
    TokenSampling,
    output_of,
)
from volumetric.run.graph.low_rank import ADAPTERS
from volumetric.run.preparable import Preparable
from volumetric.run.shared_weights import Updatable
from volumetric.run.step_times import StepTime


class AdaptedState:
    """The state of a sequence, and the weight of each adapter for its rows, by reference: scales may change later."""

    def __init__(self, inner: Any, scales: F32Array) -> None:
        self.inner = inner
        self.scales = scales

    @property
    def position(self) -> int:
        """Number of tokens in the state."""
        return self.inner.position

    @property
    def oldest_restorable(self) -> int:
        """Oldest position above 0 that `trim` can restore."""
        return self.inner.oldest_restorable

    @property
    def forgets(self) -> bool:
        """Whether some positions can only be restored from a copy, see `State.forgets`."""
        return self.inner.forgets

    def reset(self) -> None:
        """Drop all tokens."""
        self.inner.reset()

    def trim(self, position: int) -> None:
        """Drop all tokens from `position` on."""
        self.inner.trim(position)

    def shrink_to_fit(self) -> None:
        """Free memory reserved for later rows, see `State.shrink_to_fit`."""
        self.inner.shrink_to_fit()

    def fork(self, position: int | None = None) -> AdaptedState:
        """Return a copy with the same adapters."""
        return AdaptedState(self.inner.fork(position), self.scales)

    def save(self) -> bytes:
        """Return the state as bytes, without its adapters."""
        return self.inner.save()


class SharedExecutables:
    """Data shared by the executables of a model and of its adapters.

    Parameters
    ----------
    mixed : executable of the plan with adapters
    plain : executable of the plan without adapters, for calls without any; `mixed` uses its states, too. None: `mixed`
        runs all calls
    scales : adapter name → weight of each adapter for the rows of sequences with that name
    """

    def __init__(self, mixed: Executable, plain: Executable | None, scales: Mapping[str, F32Array]) -> None:
        self.mixed: Executable = mixed
        self.plain: Executable | None = plain
        self.scales: dict[str, F32Array] = dict(scales)
        self.users: int = 0

    def new_state(self, name: str) -> AdaptedState:
        """Return an empty state with the adapters `name`."""
        return AdaptedState(self.mixed.new_state(), self.scales[name])

    def choose(self, states: Sequence[AdaptedState]) -> Executable:
        """Return the executable that runs a call of these states."""
        return self.mixed if self.plain is None or any(state.scales.any() for state in states) else self.plain

    def close(self) -> None:
        """Decrement the reference count; close both executables at 0."""
        self.users -= 1
        if not self.users:
            self.mixed.close()
            if self.plain is not None:
                self.plain.close()


class AdaptedExecutable:
    """A model with some adapters active, see `Executable`; those of a `SharedExecutables` run each other's states.

    Parameters
    ----------
    shared : the executables
    name : name of the active adapters in `SharedExecutables.scales`
    """

    def __init__(self, shared: SharedExecutables, name: str) -> None:
        self.shared: SharedExecutables = shared
        self.name: str = name
        shared.users += 1
        self._closed = False

    @property
    def options(self) -> RunOptions:
        """Options that it was compiled with."""
        return self.shared.mixed.options

    @property
    def memory(self) -> MemoryReport:
        """Bytes on the device, of all executables that share it."""
        mixed, plain = self.shared.mixed.memory, self.shared.plain
        if plain is None:
            return mixed
        more = plain.memory
        return replace(mixed, weights=mixed.weights + more.weights, scratch=mixed.scratch + more.scratch)

    def new_state(self) -> AdaptedState:
        """Return an empty state with the active adapters."""
        return self.shared.new_state(self.name)

    def restore(self, data: bytes) -> AdaptedState:
        """Return the saved state `data` with the active adapters."""
        return AdaptedState(self.shared.mixed.restore(data), self.shared.scales[self.name])

    def run(self, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
        """Append the rows of each sequence to its state, each with its adapters."""
        executable, calls = self._with_adapters(pieces)
        return executable.run(calls)

    def forward(self, state: AdaptedState, x: RowInputs, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output for the last row, or for all of them."""
        return output_of(self.run([SequenceRows(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

    def greedy(
        self, states: Sequence[AdaptedState], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed `tokens`, yield the arg max of each sequence, feed those, and so on."""
        return self._loop(lambda one, fed, more: one.greedy(_inner(states), fed, more), states, tokens, constant)

    def step_times(self, states: Sequence[AdaptedState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Measure the time of each step of a call without adapters; with all if there is no plain executable."""
        return (self.shared.plain or self.shared.mixed).step_times(_inner(states), rows, repeats=repeats)

    def update(self, params: Params) -> None:
        """Replace resident weights, see `Updatable.update`, if the device supports it."""
        for one in (self.shared.mixed, self.shared.plain):
            if isinstance(one, Updatable):
                one.update(params)

    def prepare(self) -> None:
        """Compile the kernels for all row counts, if the device supports it."""
        for one in (self.shared.mixed, self.shared.plain):
            if isinstance(one, Preparable):
                one.prepare()

    def close(self) -> None:
        """Free the memory once all executables that share it are closed."""
        if not self._closed:
            self._closed = True
            self.shared.close()

    def _with_adapters(self, pieces: Sequence[SequenceRows]) -> tuple[Executable, list[SequenceRows]]:
        """Return the executable that runs `pieces`, and `pieces` converted for it."""
        executable = self.shared.choose([piece.state for piece in pieces])
        if executable is self.shared.plain:
            return executable, [replace(piece, state=piece.state.inner) for piece in pieces]
        return executable, [
            replace(piece, state=piece.state.inner, x=_with_scales(piece.x, piece.state.scales)) for piece in pieces
        ]

    def _loop(
        self,
        begin: Callable[[Executable, Sequence[int], Constant | None], Generator[list[int]]],
        states: Sequence[AdaptedState],
        tokens: Sequence[int],
        constant: Constant | None,
    ) -> Generator[list[int]]:
        """Decode on the executable for the states; restart if scales change meanwhile."""
        while True:
            now = {id(state.scales): state.scales for state in states}
            before, executable, more = _scale_contents(now), self.shared.choose(states), constant
            if executable is not self.shared.plain:
                more = {**(constant or {}), ADAPTERS: np.stack([state.scales for state in states])}
            with closing(begin(executable, tokens, more)) as loop:
                for ids in loop:
                    tokens = list(ids)
                    yield ids
                    if _scale_contents(now) != before:
                        break


class SamplingAdaptedExecutable(AdaptedExecutable):
    """An `AdaptedExecutable` on a device that samples tokens itself, see `TokenSampling`."""

    @property
    def can_pick(self) -> bool:
        """Whether `pick` supports this network."""
        return _drawing(self.shared.mixed).can_pick

    def can_sample(self, choosers: Sequence[TokenSampler | None]) -> bool:
        """Return whether it can sample the tokens of these sequences together."""
        return _drawing(self.shared.mixed).can_sample(choosers)

    def sample_loop(
        self,
        states: Sequence[AdaptedState],
        tokens: Sequence[int],
        choosers: Sequence[TokenSampler | None],
        constant: Constant | None = None,
    ) -> Generator[list[int]]:
        """Like `greedy`, but with sampled tokens."""
        return self._loop(
            lambda one, fed, more: _drawing(one).sample_loop(_inner(states), fed, choosers, more),
            states,
            tokens,
            constant,
        )

    def sample(self, pieces: Sequence[SequenceRows], choosers: Sequence[Any]) -> list[Any]:
        """Like `run`, but sample tokens from the last rows, see `TokenSampling.pick`."""
        executable, calls = self._with_adapters(pieces)
        return _drawing(executable).sample(calls, choosers)


def check_adapter(executable: Executable, name: str) -> None:
    """Raise `SpecError` unless an executable has the adapters `name`; all have the empty name."""
    if name:
        scales = executable.shared.scales if isinstance(executable, AdaptedExecutable) else {}
        if name not in scales:
            raise SpecError(f"no adapter {name!r}", hint=f"loaded: {', '.join(filter(None, scales)) or 'none'}")


def state_for(executable: Executable, name: str) -> State:
    """Return an empty state with the adapters `name`; the empty name stands for the active adapters of the executable.

    Raises
    ------
    SpecError : there are no adapters of that name
    """
    check_adapter(executable, name)
    if name and isinstance(executable, AdaptedExecutable):
        return executable.shared.new_state(name)
    return executable.new_state()


def adapted_executable(shared: SharedExecutables, name: str) -> AdaptedExecutable:
    """Return an executable with the adapters `name` active."""
    return (SamplingAdaptedExecutable if isinstance(shared.mixed, TokenSampling) else AdaptedExecutable)(shared, name)


def _drawing(executable: Executable) -> TokenSampling:
    assert isinstance(executable, TokenSampling)
    return executable


def _inner(states: Sequence[AdaptedState]) -> list[State]:
    return [state.inner for state in states]


def _scale_contents(scales: Mapping[int, F32Array]) -> list[bytes]:
    return [one.tobytes() for one in scales.values()]


def _with_scales(x: RowInputs, scales: F32Array) -> Mapping[str, NDArray[Any]]:
    """Return the inputs of a call with the weights of adapters added."""
    inputs = x if isinstance(x, Mapping) else {INPUT: x}
    rows = np.shape(inputs[INPUT])[:1] if INPUT in inputs else ()
    return {**inputs, ADAPTERS: np.broadcast_to(scales, (*rows, len(scales)))}
