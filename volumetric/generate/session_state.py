"""The state of a session: one sequence and its tokens, reused from prompt to prompt."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError

if TYPE_CHECKING:
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence
    from volumetric.run.device import Executable, State


class SessionState:
    """A state that is lent to one generation after the other; each continues from the first difference of the prompts.

    Keys and values are truncated to that position. The state of a recurrent layer cannot be truncated, and rows that a
    window has dropped cannot be restored; for such states (`State.forgets`) a copy from before the last token of the
    last prompt is stored, and the next prompt continues from it, or from the start.

    Parameters
    ----------
    executable : creates the states
    state, tokens : a state to take over, and its token ids; default: a new, empty one
    """

    def __init__(self, executable: Executable, state: State | None = None, tokens: Iterable[int] = ()) -> None:
        self._state: State | None = executable.new_state() if state is None else state
        self._tokens = list(tokens)
        self._mark: State | None = None
        """Copy of the state before the last token of the last prompt, if the state cannot be truncated."""
        self._lent: tuple[GenerationSequence, Callable[[], None]] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids in the state."""
        if self._lent is not None:
            sequence = self._lent[0]
            return tuple(sequence.ids[: sequence.fed])
        return tuple(self._tokens)

    def lend_to(self, sequence: GenerationSequence, settle: Callable[[], None]) -> None:
        """Lend a generation the state, truncated to the part that matches its prompt.

        The last token of a prompt is always fed, because its logits are needed.

        Parameters
        ----------
        settle : truncates the state to the returned tokens; called before the lent state is read

        Raises
        ------
        GenerationError : the session is closed
        """
        last = len(sequence.ids) - 1
        same = map(operator.eq, self._tokens, sequence.ids)
        self._go_back(min(sum(1 for _ in itertools.takewhile(bool, same)), last))
        state = self._open()
        sequence.state, sequence.fed = state, len(self._tokens)
        self._lent = sequence, settle
        if state.forgets:
            sequence.cuts = (last,)
            self.mark(sequence)

    def mark(self, sequence: GenerationSequence) -> None:
        """Store a copy of the state, if the generation has reached the position for it."""
        state = sequence.state
        if (
            state is not None
            and sequence.fed in sequence.cuts
            and (self._mark is None or self._mark.position < sequence.fed)
        ):
            self._mark = state.fork()

    def take_back(self) -> None:
        """Take the state back from its generation."""
        if self._lent is not None:
            sequence, self._lent = self._lent[0], None
            self._tokens, self._state = sequence.ids[: sequence.fed], sequence.state

    def settled_state(self) -> State:
        """Return the state, which contains `tokens`, to be copied or saved.

        Raises
        ------
        GenerationError : the session is closed
        """
        if self._lent is None:
            if self._open().position != len(self._tokens):  # its last call was interrupted, or has failed
                self._go_back(len(self._tokens))
            return self._open()
        sequence, settle = self._lent
        settle()
        assert sequence.state is not None
        return sequence.state

    def reset(self) -> None:
        """Clear the state."""
        self._open().reset()
        self._mark = None
        self._tokens.clear()

    def close(self) -> None:
        """Free the device memory."""
        self._state = self._mark = None
        self._tokens.clear()

    def _go_back(self, position: int) -> None:
        """Truncate the state to `position`, or to an earlier one if there is no copy for it."""
        state, mark = self._open(), self._mark
        if mark is not None and mark.position > position:
            self._mark = None  # it contains tokens that differ
        if 0 < position < min(state.oldest_restorable, state.position):
            if mark is None or mark.oldest_restorable > position:
                state.reset()
            else:
                self._state = state = mark.fork()
            position = min(position, state.position)
        state.trim(position)
        del self._tokens[position:]

    def _open(self) -> State:
        if self._state is None:
            raise GenerationError("the session is closed", hint="create another one with model.session()")
        return self._state
