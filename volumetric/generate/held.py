"""What a session holds: the state of one sequence, and the tokens in it, kept from prompt to prompt."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError

if TYPE_CHECKING:
    from volumetric.generate.scheduling.live import Live
    from volumetric.run.device import Executable, State


class Held:
    """A state that is lent to one generation after the other, each of which goes on from where the prompts part.

    Keys and values are cut back to there. What has one value for the whole sequence, as the state of a recurrent layer,
    cannot be, nor can rows come back that were given away behind a window; where a state has such (`State.forgets`) a
    copy is kept from before the last token of the last prompt, and the next one goes back to it, or to the start.

    Parameters
    ----------
    executable : makes the states
    state, tokens : a state to take over, and the token ids that it holds; a new, empty one unless given
    """

    def __init__(self, executable: Executable, state: State | None = None, tokens: Iterable[int] = ()) -> None:
        self._state: State | None = executable.new_state() if state is None else state
        self._tokens = list(tokens)
        self._mark: State | None = None
        """Copy of the state before the last token of the last prompt, where going back takes one."""
        self._lent: tuple[Live, Callable[[], None]] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids that the state holds."""
        if self._lent is not None:
            live = self._lent[0]
            return tuple(live.ids[: live.fed])
        return tuple(self._tokens)

    def lend(self, live: Live, settle: Callable[[], None]) -> None:
        """Give a generation the state, with what it holds of the prompt already.

        The last token of a prompt is always fed: its logits are what is wanted.

        Parameters
        ----------
        settle : makes the state hold what was told and no more; called before it is looked at while it is lent

        Raises
        ------
        GenerationError : it was let go of
        """
        last = len(live.ids) - 1
        same = map(operator.eq, self._tokens, live.ids)
        self._go_back(min(sum(1 for _ in itertools.takewhile(bool, same)), last))
        state = self._open()
        live.state, live.fed = state, len(self._tokens)
        self._lent = live, settle
        if state.forgets:
            live.cuts = (last,)
            self.mark(live)

    def mark(self, live: Live) -> None:
        """Keep a copy of the state, if the generation has come to where one is wanted."""
        state = live.state
        if state is not None and live.fed in live.cuts and (self._mark is None or self._mark.position < live.fed):
            self._mark = state.fork()

    def take_back(self) -> None:
        """Take the state from the generation that has it."""
        if self._lent is not None:
            live, self._lent = self._lent[0], None
            self._tokens, self._state = live.ids[: live.fed], live.state

    def seen(self) -> State:
        """Return the state, which holds `tokens`, to be copied or saved.

        Raises
        ------
        GenerationError : it was let go of
        """
        if self._lent is None:
            if self._open().position != len(self._tokens):  # its last call was interrupted, or has failed
                self._go_back(len(self._tokens))
            return self._open()
        live, settle = self._lent
        settle()
        assert live.state is not None
        return live.state

    def reset(self) -> None:
        """Forget all tokens."""
        self._open().reset()
        self._mark = None
        self._tokens.clear()

    def close(self) -> None:
        """Let go of the device memory."""
        self._state = self._mark = None
        self._tokens.clear()

    def _go_back(self, position: int) -> None:
        """Forget what was fed from `position` on, or from further back where there is no copy of then."""
        state, mark = self._open(), self._mark
        if mark is not None and mark.position > position:
            self._mark = None  # it holds tokens that will be others
        if 0 < position < min(state.reach, state.position):
            if mark is None or mark.reach > position:
                state.reset()
            else:
                self._state = state = mark.fork()
            position = min(position, state.position)
        state.trim(position)
        del self._tokens[position:]

    def _open(self) -> State:
        if self._state is None:
            raise GenerationError("the session is closed", hint="make another with model.session()")
        return self._state
