"""The null device: allocates nothing and computes nothing. For tests of everything but arithmetic."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import UnsupportedError
from volumetric.layers import StateSpec
from volumetric.network import OUTPUT, Params
from volumetric.runtime.batch import Part, greedy_each, run_each
from volumetric.runtime.device import (
    Constant,
    DeviceInfo,
    Found,
    Given,
    MemoryReport,
    Piece,
    RunOptions,
    output_of,
)
from volumetric.runtime.held import Held
from volumetric.runtime.plan import Plan
from volumetric.runtime.profile import StepTime
from volumetric.runtime.state import check_trim, has_fixed
from volumetric.runtime.state_file import restore_state, save_state


class NullDevice:
    """Compiles anything; every output is zeros."""

    @property
    def info(self) -> DeviceInfo:
        """What `volumetric devices` prints."""
        return DeviceInfo(name="null", kind="null", description="plans, computes nothing; outputs are zeros")

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> NullExecutable:
        """Take any plan."""
        return NullExecutable(plan, options or RunOptions())


class NullState:
    """A position, and zeros."""

    def __init__(self, specs: Mapping[str, StateSpec], position: int = 0) -> None:
        self.position = position
        self._specs = specs

    @property
    def forgets(self) -> bool:
        """Whether there are places to which only a copy leads back, see `State.forgets`."""
        return has_fixed(self._specs)

    @property
    def reach(self) -> int:
        """First position beyond 0 to which `trim` goes back."""
        return self.position if self.forgets else 0

    def reset(self) -> None:
        """Forget everything."""
        self.position = 0

    def trim(self, position: int) -> None:
        """Forget all rows from `position` on."""
        check_trim(self.position, position, self._specs, self.reach)
        self.position = position

    def fork(self, position: int | None = None) -> NullState:
        """Copy, see `State.fork`."""
        twin = NullState(self._specs, self.position)
        if position is not None:
            twin.trim(position)
        return twin

    def shrink_to_fit(self) -> None:
        """Nothing is allocated."""

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        return save_state(self, self._specs)

    def read(self, key: str) -> NDArray[np.float32]:
        """Return zeros of the shape of what other devices hold."""
        spec = self._specs[key]
        return np.zeros((self.position, *spec.shape) if spec.kind == "rows" else spec.shape, np.float32)

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Take over the position."""
        self.position = position


class NullExecutable:
    """A plan; checks inputs and counts positions."""

    def __init__(self, plan: Plan, options: RunOptions) -> None:
        self.plan = plan
        self.options = options

    @property
    def memory(self) -> MemoryReport:
        """Nothing is allocated."""
        return MemoryReport(weights=0, scratch=0, state_per_token=0)

    def new_state(self) -> NullState:
        """Return an empty state."""
        return NullState(self.plan.states)

    def restore(self, data: bytes) -> NullState:
        """Return a state at the position of the one that `data` was saved of."""
        state = self.new_state()
        restore_state(state, data, self.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[Piece]) -> list[Found]:
        """Append the rows of each piece to its state, one piece after the other."""
        return run_each(self, self.plan, pieces)

    def run_part(self, part: Part) -> dict[str, NDArray[np.float32]]:
        """Advance the position, return zeros of the right shapes."""
        part.state.position += len(part)
        rows = len(part) if part.wanted == "all" else 1
        shapes = {name: self.plan.values[self.plan.outputs[name]].shape for name in part.outputs}
        return {name: np.zeros((rows, *shape[1:]), np.float32) for name, shape in shapes.items()}

    def forward(self, state: NullState, x: Given, *, last_only: bool = True) -> NDArray[np.float32]:
        """Check `x`, advance the position, return zeros of the right shape."""
        return output_of(self.run([Piece(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

    def greedy(
        self, states: Sequence[NullState], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed `tokens`, yield the arg max of each sequence, feed those, and so on."""
        return greedy_each(self, self.plan, states, tokens, constant)

    def step_times(self, states: Sequence[NullState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Refuse: raises `UnsupportedError`."""
        raise UnsupportedError("the null device has no profile", hint="use device='cpu' or device='gpu'")

    def close(self) -> None:
        """Nothing to release."""
