"""Sentences a second: this engine beside sentence-transformers and ONNX Runtime, the same texts and threads.

    python -m venv /tmp/peer
    /tmp/peer/bin/pip install torch sentence-transformers onnx onnxruntime
    python -m benchmarks embed --peer-python /tmp/peer/bin/python --model path/to/all-MiniLM-L6-v2

All compute in float32 unless `--peers` names others: ``volumetric:int8:g32``, ``volumetric:bfloat16`` and
``onnxruntime:int8`` (its dynamic quantisation); a line below the table tells what that does to the embeddings.

Every engine is a process of its own with the model open; in each round all embed the same texts, one engine after the
other, and the order turns. Rates are medians over the rounds with the least and the greatest; a ratio is the median of
the rounds' ratios. Where other work shares the machine, `--cpu-time --threads 1` is the fairer clock. `mixed` has
lengths from 4 to 256 tokens, most of them short, as questions and passages have.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from benchmarks.workers import Worker

PEERS = ("sentence-transformers", "onnxruntime")
WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
]


def opened(python: str, engine: str, model: str, threads: int) -> Worker:
    """Return an engine in a process of its own, with the model open."""
    environment = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    worker = Worker(python, "embed_worker.py", engine, model, str(threads), name=engine, environment=environment)
    worker.answer()
    return worker


def texts_of(kind: str, tokens: int, rng: np.random.Generator) -> list[str]:
    """Texts of words that are one token each, two special tokens beside, about `tokens` tokens in all."""
    if kind == "mixed":
        lengths = np.clip(rng.lognormal(3.4, 0.9, max(tokens // 45, 8)), 4, 256).astype(int).tolist()
    else:
        lengths = [int(kind)] * max(tokens // int(kind), 8)
    return [" ".join(rng.choice(WORDS, length - 2)) for length in lengths]


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--peer-python", required=True, help="Python that has torch, sentence-transformers, onnxruntime"
    )
    parser.add_argument("--model", required=True, help="directory of a model of sentence-transformers")
    parser.add_argument("--lengths", default="16,64,256,mixed")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of a measurement, about")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count the processor's seconds, with --threads 1: other work on the machine costs less of them",
    )
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    engines = ["volumetric", *args.peers.split(",")]
    pythons = {name: sys.executable if name.startswith("volumetric") else args.peer_python for name in engines}
    workers = {name: opened(pythons[name], name, args.model, args.threads) for name in engines}
    exact = [name for name in engines if ":" not in name]
    rng, measured = np.random.default_rng(0), {}
    cosines: dict[str, list[float]] = {name: [] for name in engines if name not in exact}
    print(f"| tokens a text | texts | {' | '.join(engines)} | {' | '.join(f'over {name}' for name in engines[1:])} |")
    print("| --- " * (1 + 2 * len(engines)) + "|")
    for kind in args.lengths.split(","):
        texts = texts_of(kind, args.tokens, rng)
        question = {"texts": texts}
        rows = {name: np.array(workers[name].ask(question)["rows"]) for name in engines}  # warm, and the same numbers
        apart = max(float(np.abs(rows[name] - rows["volumetric"]).max()) for name in exact)
        for name, found in cosines.items():
            found += (rows[name] * rows["volumetric"]).sum(axis=1).tolist()  # of length 1, all of them
        if not apart < 1e-4:
            raise SystemExit(f"error: the engines differ by {apart}")
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        for turn in range(args.rounds):
            for place in range(len(engines)):
                name = engines[(place + turn) % len(engines)]
                time.sleep(0.3)  # threads of the engine before stop spinning
                seconds[name].append(workers[name].ask(question)["cpu" if args.cpu_time else "seconds"])
        rates = {name: [len(texts) / one for one in times] for name, times in seconds.items()}
        cells = [spread(r) for r in rates.values()]
        ratios = [
            statistics.median(a / b for a, b in zip(rates["volumetric"], rates[name], strict=True))
            for name in engines[1:]
        ]
        print(f"| {kind} | {len(texts)} | {' | '.join(cells)} | {' | '.join(f'{r:.2f}' for r in ratios)} |", flush=True)
        measured[kind] = {"texts": len(texts), "seconds": seconds}
    for name, found in cosines.items():
        print(f"{name}: cosine to float32 at least {min(found):.5f}, mean {statistics.mean(found):.5f}")
    for one in workers.values():
        one.close()
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
