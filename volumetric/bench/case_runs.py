"""Cases and their runs: random tokens, straight on the executable, without tokenising and sampling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import IntArray
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Executable, State
from volumetric.run.step_times import StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    prompt : tokens processed at once
    generate : tokens generated one after the other
    depth : tokens in the context beforehand; putting them there is not timed
    batch : sequences that generate together; prompts are processed one at a time
    """

    prompt: int = 0
    generate: int = 0
    depth: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate, self.depth) < 0 or self.prompt + self.generate == 0:
            raise SpecError(
                f"a benchmark case needs tokens to process or to generate, got {self.prompt}, {self.generate} "
                f"at depth {self.depth}"
            )
        if self.batch < 1 or (self.batch > 1 and self.prompt):
            raise SpecError(f"a batch must have 1 or more sequences that generate without a prompt, got {self}")

    @property
    def name(self) -> str:
        """``pp512``, ``tg128``, ``tg128 x4`` or ``pp512+tg128``, with ``@ d4096`` for a depth above 0."""
        generated = f"tg{self.generate}" + (f" x{self.batch}" if self.batch > 1 else "")
        parts = [f"pp{self.prompt}"] * bool(self.prompt) + [generated] * bool(self.generate)
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def context(self) -> int:
        """Least context of the case."""
        return self.depth + self.prompt + self.generate


def cases(
    prompts: Sequence[int],
    generates: Sequence[int],
    pairs: Sequence[tuple[int, int]] = (),
    depths: Sequence[int] = (0,),
    batches: Sequence[int] = (1,),
) -> tuple[Case, ...]:
    """Return the cases for lists of sizes; a size of 0 leaves its test out, as in llama-bench.

    Generation runs once for each batch size; prompts and pairs run with a single sequence.

    Raises
    ------
    SpecError : nothing is left to measure, or a size is negative
    """
    rows = [
        Case(prompt=prompt, generate=generate, depth=depth, batch=batch)
        for depth in depths
        for prompt, generate, batch in [
            *((p, 0, 1) for p in prompts if p),
            *((0, n, b) for n in generates if n for b in batches),
            *((p, n, 1) for p, n in pairs),
        ]
    ]
    if not rows:
        raise SpecError("nothing to measure", hint="set a prompt size (-p), a generation size (-n), or both")
    return tuple(rows)


def measure(
    executable: Executable,
    vocab_size: int,
    case: Case,
    repetitions: int = 5,
    seed: int = 0,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the tokens per second of each repetition of `case`, after a warm-up.

    Prompts are split into the same chunks as by `Session`. Generation is the device's greedy loop, which includes the
    arg max of each step. A batch counts the tokens of all its sequences; each of its steps is one call.

    Parameters
    ----------
    clock : returns seconds of wall time, or of CPU time, such as `time.process_time`

    Raises
    ------
    SpecError : no repetitions, or the case needs a larger context than the executable has
    """
    if repetitions < 1:
        raise SpecError(f"repetitions must be 1 or more, got {repetitions}")
    context = executable.options.context
    if case.context > context:
        raise SpecError(f"{case.name} needs a context of {case.context}, the model was opened with {context}")
    ids = rng.generator(seed).integers(0, vocab_size, case.depth + case.prompt + 1).astype(np.int32)
    depth, prompt, first = ids[: case.depth], ids[case.depth : -1], int(ids[-1])
    state = executable.new_state()
    _feed(executable, state, depth)
    if case.batch > 1:
        states = [state, *(state.fork() for _ in range(case.batch - 1))]
        tokens = rng.generator(seed).integers(0, vocab_size, case.batch).astype(np.int32)
        rates = _repeat_batch(executable, states, case, tokens, clock)
    else:
        rates = _repeat(executable, state, case, prompt, first, clock)
    return list(islice(rates, 1, repetitions + 1))


def profile(
    executable: Executable, vocab_size: int, case: Case, repetitions: int = 10, seed: int = 0
) -> tuple[StepTime, ...]:
    """Return the time of each step: of the first call of the prompt, or of one token if the case only generates.

    With a batch a call has a token of each sequence.

    Raises
    ------
    UnsupportedError : the device has no profiler
    """
    state = executable.new_state()
    _feed(executable, state, rng.generator(seed).integers(0, vocab_size, case.depth).astype(np.int32))
    rows = min(case.prompt, PREFILL_ROWS) or 1
    states = [state, *(state.fork() for _ in range(case.batch - 1))]
    return tuple(executable.step_times(states, rows, repeats=repetitions))


def _repeat_batch(
    executable: Executable, states: list[State], case: Case, first: IntArray, clock: Callable[[], float]
) -> Iterator[float]:
    origin = states[0].fork()
    while True:
        states = [_rewind(state, origin) for state in states]
        start = clock()
        with closing(executable.greedy(states, first.tolist())) as generated:
            for _ in islice(generated, case.generate):
                pass
        yield case.generate * len(states) / (clock() - start)


def _repeat(
    executable: Executable, state: State, case: Case, prompt: IntArray, first: int, clock: Callable[[], float]
) -> Iterator[float]:
    origin = state.fork()
    while True:
        state = _rewind(state, origin)
        start = clock()
        _feed(executable, state, prompt)
        if case.generate:
            _generate(executable, state, first, case.generate)
        yield (case.prompt + case.generate) / (clock() - start)


def _rewind(state: State, origin: State) -> State:
    """Return a state at the position of `origin`: `state` truncated, or a copy of `origin` if that is impossible."""
    try:
        state.trim(origin.position)
    except GenerationError:  # layers whose state is a single value cannot be truncated
        return origin.fork()
    return state


def _feed(executable: Executable, state: State, ids: IntArray) -> None:
    for start in range(0, ids.size, PREFILL_ROWS):
        executable.forward(state, ids[start : start + PREFILL_ROWS], last_only=True)


def _generate(executable: Executable, state: State, first: int, count: int) -> None:
    with closing(greedy_ids(executable, state, first)) as generated:
        for _ in islice(generated, count):
            pass
