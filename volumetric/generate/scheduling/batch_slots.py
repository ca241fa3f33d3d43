"""Slots: the generations of the batch, their states, and the choice of their rows for the next call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base.errors import DeviceError
from volumetric.generate.scheduling.generation_sequence import GenerationSequence, StateBudget
from volumetric.generate.scheduling.limits import PREFILL_ROWS, Limits
from volumetric.generate.scheduling.prefill_budget import ENOUGH, PrefillBudget
from volumetric.generate.scheduling.prefix_cache import PrefixCache, common_length
from volumetric.generate.scheduling.scheduler_stats import SchedulerStats
from volumetric.generate.scheduling.token_batch import GrowingStates
from volumetric.run.adapted_executable import state_for

if TYPE_CHECKING:
    from volumetric.run.device import Executable, State

PATIENCE = 4
"""Most consecutive calls in which later prompts may be computed instead of a prompt."""
LOST = 8
"""Number of turns after which a text yields if its state would have to be recomputed."""
WORTH = 16
"""Least rows for which copying a state, or waiting for it, is cheaper than computing them."""


class BatchSlots:
    """Generations with a slot, in the order in which they got it.

    Parameters
    ----------
    executable : creates the states
    limits : number of slots, and limits of a call
    room : memory of states
    settle : truncates states to the returned tokens; called before a state is read
    sync : writes the tokens so far into the sequences; called before they are counted
    """

    def __init__(
        self,
        executable: Executable,
        limits: Limits,
        room: StateBudget,
        settle: Callable[[], None],
        sync: Callable[[], None],
    ) -> None:
        self._executable = executable
        self._limits = limits
        self._room = room
        self._settle = settle
        self._sync = sync
        self._pace = PrefillBudget(limits.max_stall)
        self._prefixes = PrefixCache(limits.prefix_bytes, room.bytes_kept) if limits.prefix_bytes else None
        self._spare: list[tuple[str, State]] = []  # with their adapters
        self._resting: list[GenerationSequence] = []
        """Generations without a slot whose states are kept, the longest suspended first."""
        self.all: list[GenerationSequence] = []
        self._growing: GrowingStates | None = None  # while all decode in the device's loop

    def __len__(self) -> int:
        """Number of slots in use, including those of followers that wait for their prompt."""
        return len(self.all) + sum([len(sequence.followers) for sequence in self.all])

    def has_room(
        self, sequence: GenerationSequence, *, without: Collection[GenerationSequence] = (), resting: bool = False
    ) -> bool:
        """Whether there are slots and memory for a generation and its followers; memory is ignored for a single job.

        Parameters
        ----------
        without : generations that would yield their slots
        resting : keep their states, and those of other suspended generations
        """
        if len(self) - sum(one.texts for one in without) + sequence.texts > self._limits.slots:
            return False
        limit = self._room.limit
        if limit is None or len(without) == len(self.all):
            return True
        self._sync()
        ahead = min(sequence.transcript.tokens_left, self._limits.ahead)
        need = self._bytes() - sum(self._bytes_of(one, 0) for one in without)
        need += sequence.texts * self._room.bytes_of(len(sequence.ids) + ahead)
        if resting:
            need += sum(self._bytes_of(one, 0) for one in (*without, *self._resting) if one is not sequence)
        return need <= limit

    def preempted_for(
        self, sequence: GenerationSequence, others: Sequence[tuple[float, GenerationSequence]]
    ) -> list[GenerationSequence]:
        """Return the generations that yield slots to a waiting one; none if that is not enough, or too early.

        Parameters
        ----------
        others : generations with the lead of their requests in slot usage, in descending order
        """
        if self._limits.turn is None:
            return []
        for turn, resting in ((self._limits.turn, True), (LOST * self._limits.turn, False)):
            giving: list[GenerationSequence] = []
            for ahead, other in others:
                if ahead < turn:
                    break
                giving.append(other)
                if self.has_room(sequence, without=giving, resting=resting):
                    return giving
        return []

    def take(self, sequence: GenerationSequence) -> None:
        """Assign slots to a generation and its followers."""
        if sequence in self._resting:
            self._resting.remove(sequence)
        self.all.append(sequence)

    def rest(self, sequence: GenerationSequence) -> None:
        """Suspend a generation and its followers: free their slots, and keep the state if there is memory."""
        self._settle()
        self.all.remove(sequence)
        sequence.rest()
        if sequence.state is not None:
            self._resting.append(sequence)
        while len(self._resting) > self._limits.slots:
            self._resting[0].forget()
            del self._resting[0]

    def follow(self, sequence: GenerationSequence) -> list[GenerationSequence]:
        """Give the followers of a computed prompt copies of its state, and return them."""
        followers, sequence.followers = sequence.followers, []
        for one in followers:
            assert sequence.state is not None
            one.state, one.fed = sequence.state.fork(), sequence.fed
            one.transcript.cached = len(sequence.prompt)
            self.all.append(one)
        return followers

    def leave(self, sequence: GenerationSequence, *, keep: bool = True) -> None:
        """Free the slots. The state goes to the prefix cache, unless its contents are undefined."""
        self.all.remove(sequence)
        sequence.rest()
        session_state = sequence.ticket.job.session_state
        if session_state is not None:
            session_state.take_back()
        self._put_away(sequence, keep=keep)

    def give_back(self, sequence: GenerationSequence, *, keep: bool = True) -> None:
        """Release the state of a generation without a slot, as `leave` does."""
        if sequence in self._resting:
            self._resting.remove(sequence)
        self._put_away(sequence, keep=keep)

    def _put_away(self, sequence: GenerationSequence, *, keep: bool) -> None:
        session_state = sequence.ticket.job.session_state
        state, sequence.state = sequence.state, None
        if state is None or session_state is not None or not keep:
            return
        if self._prefixes is not None:
            self._prefixes.keep(np.array(sequence.ids[: sequence.fed], np.int32), state, sequence.group)
        elif self._limits.state_bytes is None and len(self._spare) < self._limits.slots:
            state.reset()
            self._spare.append((sequence.ticket.job.adapter, state))

    def share(self, looping: Sequence[GenerationSequence] = ()) -> Sequence[tuple[GenerationSequence, int]]:
        """Return the generations of the next call, and their rows: all that decode, and the first prompts.

        Parameters
        ----------
        looping : generations that are known to decode; the same object as long as they do
        """
        if looping and self.all == list(looping):
            if self._growing is None or self._growing.sequences is not looping:
                self._growing = GrowingStates(looping, self._room)
            return self._growing.rows
        self._growing = None
        prompts = sorted([sequence for sequence in self.all if not sequence.decoding], key=_turn)
        if not prompts:
            return [(sequence, 1) for sequence in self.all]
        self._settle()
        beside = len(self.all) - len(prompts)
        budget = whole = self._budget(beside)
        enough = self._enough(beside)
        under_way = [sequence for sequence in prompts if sequence.state is not None]
        chosen: dict[int, int] = {}
        for sequence in prompts:
            # A call could contain many prompts, but all of them would wait for its end.
            if budget <= 0 or whole - budget >= enough:
                break
            if sequence.state is None:
                if not self._begin(sequence, under_way):
                    continue
                under_way.append(sequence)
            if chosen and budget < sequence.missing <= whole:
                break  # the next call can compute it whole; a part of it now would only delay this call
            rows = min(budget, sequence.until_cut())
            chosen[id(sequence)] = rows
            budget -= rows
        latest = max((sequence.order for sequence in prompts if id(sequence) in chosen), default=(0, 0))
        for sequence in prompts:
            sequence.passed = 0 if id(sequence) in chosen else sequence.passed + (sequence.order < latest)
        return [
            (sequence, 1 if sequence.decoding else chosen[id(sequence)])
            for sequence in self.all
            if sequence.decoding or id(sequence) in chosen
        ]

    def fit(self, taking: Sequence[tuple[GenerationSequence, int]]) -> Iterator[GenerationSequence]:
        """Free memory for the rows of a call; yield the generations that lose their slots, the youngest first."""
        need, limit = self._need(taking), self._room.limit
        if limit is None:
            return
        while need > limit:
            if len(self.all) < 2:  # never larger than the scheduler's limit for a job
                break
            youngest = max(self.all, key=lambda sequence: sequence.order)
            self._settle()
            self.all.remove(youngest)
            youngest.forget()
            youngest.rest()
            yield youngest
            need = self._need(taking)
        while self._resting and need + self._resting_bytes() > limit:
            self._resting.pop(0).forget()
        if self._prefixes is not None:
            self._prefixes.shrink(limit - need - self._resting_bytes())

    def _need(self, taking: Sequence[tuple[GenerationSequence, int]]) -> int:
        """Return the memory of all generations with a slot, with their rows of a call."""
        if self._growing is not None and self._growing.rows is taking:
            return self._growing.grow()
        self._growing = None
        rows = {id(sequence): count for sequence, count in taking}
        return sum([self._bytes_of(sequence, rows.get(id(sequence), 0)) for sequence in self.all])

    def holds_guesses(self) -> bool:
        """Whether there is memory for the draft rows, and for copies of states that cannot be truncated."""
        if self._room.limit is None:
            return True
        need = sum(self._bytes_of(sequence, 1 + len(sequence.guesses)) for sequence in self.all)
        need += sum(
            self._bytes_of(sequence, 0)
            for sequence in self.all
            if sequence.guesses and sequence.state and sequence.state.forgets
        )
        left = self._room.limit - need - self._resting_bytes()
        if self._prefixes is not None and left >= 0:
            self._prefixes.shrink(left)
        return left >= 0

    def count(self, rows: int, beside: int, seconds: float) -> None:
        """Record the time of a call, with its prompt rows, if any, and the rows of decoding sequences."""
        if rows:
            self._pace.count(rows, beside, seconds)
        else:
            self._pace.decoded(seconds)

    def keep_marked(self, taking: Sequence[tuple[GenerationSequence, int]]) -> None:
        """Cache copies of states at marked positions, to which they cannot be truncated later."""
        for sequence, _ in taking:
            state, session_state = sequence.state, sequence.ticket.job.session_state
            if session_state is not None:
                session_state.mark(sequence)
            elif self._prefixes is not None and state is not None and sequence.fed in sequence.cuts:
                self._make_room(sequence.fed)
                copy = self._copy(state, sequence.fed)
                if copy is not None:
                    self._prefixes.keep(np.array(sequence.ids[: sequence.fed], np.int32), copy, sequence.group)

    def clear(self) -> None:
        """Free all states."""
        self._spare.clear()
        if self._prefixes is not None:
            self._prefixes.clear()

    def measure(self, stats: SchedulerStats) -> None:
        """Update the memory statistics."""
        growing = self._growing
        if growing is not None and self.all == list(growing.sequences):
            stats.state_bytes = growing.nbytes + self._resting_bytes()
        else:
            stats.state_bytes = sum([self._bytes_of(sequence, 0) for sequence in self.all]) + self._resting_bytes()
        if self._prefixes is not None:
            stats.prefix_bytes, stats.prefix_entries = self._prefixes.nbytes, len(self._prefixes)
            stats.prefix_evictions = self._prefixes.evictions
            stats.state_bytes += stats.prefix_bytes

    def _bytes_of(self, sequence: GenerationSequence, more: int) -> int:
        if sequence.state is None:
            return 0
        bytes_used = self._room.bytes_of(sequence.fed + more)
        return bytes_used * sequence.texts if sequence.followers else bytes_used

    def _bytes(self) -> int:
        return sum(self._room.bytes_of(len(sequence.ids)) * sequence.texts for sequence in self.all)

    def _resting_bytes(self) -> int:
        return sum(self._bytes_of(sequence, 0) for sequence in self._resting)

    def _copy(self, state: State, rows: int) -> State | None:
        """Return a copy of the first rows of a state; None if the device has no memory for it.

        Cached prefixes are then dropped, because the next calls need the memory more.
        """
        try:
            return state.fork(rows)
        except DeviceError:
            if self._prefixes is not None:
                self._prefixes.clear()
            return None

    def _make_room(self, rows: int) -> None:
        """Drop cached prefixes to free memory for a state of `rows` rows."""
        if self._room.limit is not None and self._prefixes is not None:
            running_bytes = sum(self._bytes_of(sequence, 0) for sequence in self.all)
            self._prefixes.shrink(self._room.limit - running_bytes - self._resting_bytes() - self._room.bytes_of(rows))

    def _budget(self, beside: int) -> int:
        """Return the limit of prompt rows in the next call with `beside` decoding sequences."""
        if self._limits.prompt_rows is not None:
            return self._limits.prompt_rows if beside else PREFILL_ROWS
        return self._pace.rows() if beside else self._pace.alone()

    def _enough(self, beside: int) -> int:
        """Return the prompt rows after which no further prompt is added to the call, see `PrefillBudget.enough`."""
        if self._limits.prompt_rows is not None:
            return self._limits.prompt_rows if beside else ENOUGH
        return self._pace.enough()

    def _begin(self, sequence: GenerationSequence, under_way: Sequence[GenerationSequence]) -> bool:
        """Give a prompt a state with its longest cached prefix; False if the next calls will compute a longer one."""
        if sequence.ticket.job.session_state is not None:
            sequence.ticket.job.session_state.lend_to(sequence, self._settle)
            sequence.transcript.cached = sequence.fed
            return True
        ids = np.array(sequence.ids[:-1], np.int32)  # the last token is always fed, because its logits are needed
        entry, source, rows, known = None, None, 0, 0
        if sequence.scored:
            ids = ids[:0]
        if self._prefixes is not None and ids.size >= WORTH:
            match = self._prefixes.find(ids, sequence.group)
            rows, known, entry = match.rows, match.known, match.entry
        if self._limits.prefix_bytes is not None and ids.size >= WORTH:
            for other in self.all:
                if other.state is None or other is sequence or other.group != sequence.group:
                    continue
                alike = common_length(other.prompt, ids)
                here = min(alike, other.fed)
                if here > rows and here >= other.state.oldest_restorable:
                    rows, entry, source = here, None, other.state
                if alike > here and alike >= rows + WORTH and other in under_way and not other.state.forgets:
                    return False
        if rows < WORTH:
            rows, entry, source = 0, None, None
        if entry is not None and self._prefixes is not None:
            source = self._prefixes.use(entry)
        self._make_room(rows)
        sequence.state = None if source is None else self._copy(source, rows)
        if sequence.state is None:
            rows, sequence.state = 0, self._fresh(sequence.ticket.job.adapter)
        sequence.fed = rows
        if not sequence.transcript.begun:
            sequence.transcript.cached = rows
        if self._prefixes is not None and sequence.state.forgets:
            sequence.cuts = tuple(at for at in (known, ids.size) if at > rows and at >= WORTH)
        return True

    def _fresh(self, adapter: str) -> State:
        """Return an empty state."""
        for at, (name, state) in enumerate(self._spare):
            if name == adapter:
                del self._spare[at]
                return state
        return state_for(self._executable, adapter) if adapter else self._executable.new_state()


def _turn(sequence: GenerationSequence) -> tuple[int, bool, int, int]:
    """Sort key of prompts: priority, passed over too often, fewest rows left, arrival."""
    back, number = sequence.order
    late = sequence.passed >= PATIENCE
    return back, not late, number if late else sequence.missing, number
