"""How many tokens a second a server streams to many clients, and how long they wait for the first.

    python -m benchmarks serve_speed --device gpu [--clients 64,256] [--http-workers 0,4] [--tokens 128]
    python -m benchmarks serve_speed --device cpu --shape tiny --clients 4 --requests 1 --tokens 16

A Llama of `--shape` with random weights and a tokenizer that is trained on our documents are made on the machine
itself: nothing has to be downloaded, and no text ends before `--tokens`. The server runs in a process of its own for
each number of HTTP workers, and `--client-processes` processes are the clients of `volumetric bench --suite serve`:
each of `--clients` sends `--requests` streamed chats, one after the other. Logits of random weights are nearly flat,
for which sampling is slowest. Before the loads of a server there is a short one of each kind, for what is made once.

A row has the tokens a second of all clients together, the time to the first token and between chunks, and the
processor time a token (Linux) of the engine's process and of the HTTP workers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from benchmarks.arguments import argument_parser, numbers, positive_int, positive_ints
from benchmarks.random_model import SHAPES, random_text_model
from benchmarks.serve_cost import KINDS, children_of, seconds_of
from benchmarks.server import run_until_closed
from volumetric.bench.serve import ServerTarget, ask
from volumetric.bench.serve.load_runs import messages_of
from volumetric.devices.named_devices import open_device
from volumetric.generate import Limits, Model
from volumetric.loaders.chat_template import chat_template
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.run import RunOptions
from volumetric.serve.server import Server, listen
from volumetric.serve.serving import ServerSettings

ROOT: Final = Path(__file__).parents[1]
VOCABULARY: Final = 49_152
LEARNT: Final = 8_192
CONTEXT: Final = 2048
TEMPLATE: Final = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def trained_tokenizer(texts: list[str]) -> tokenizers.Tokenizer:
    """A byte-level BPE that is trained on texts, and has words of three letters as its other tokens."""
    base = tokenizers.Tokenizer(BPE())
    base.pre_tokenizer = ByteLevel(add_prefix_space=False)
    base.decoder = ByteDecoder()
    special = ["<|start|>", "<|end|>"]
    trainer = BpeTrainer(
        vocab_size=LEARNT, initial_alphabet=ByteLevel.alphabet(), special_tokens=special, show_progress=False
    )
    base.train_from_iterator(texts, trainer)
    state = json.loads(base.to_str())
    vocabulary: dict[str, int] = state["model"]["vocab"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = (f"Ġ{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in "aeiou")
    for word in words:
        if len(vocabulary) == VOCABULARY:
            break
        vocabulary.setdefault(word, len(vocabulary))
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def untrained_model(shape: str, dtype: str, device: str) -> Model:
    """A model with random weights, a tokenizer trained on our documents, and a chat template of its own."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    backend = trained_tokenizer([path.read_text(encoding="utf-8") for path in documents])
    special = {"bos_token": "<|start|>", "eos_token": "<|end|>"}
    ids = {text: number for text, number in backend.get_vocab().items() if text in special.values()}
    loaded = dataclasses.replace(
        random_text_model(shape, dtype, vocabulary=VOCABULARY, context=CONTEXT),
        tokenizer=Tokenizer(lambda: backend, special_tokens=special, special_ids=ids, where="the trained tokenizer"),
        chat_template=chat_template({"default": TEMPLATE}, special, "the chat template"),
    )
    return Model(loaded, open_device(device), RunOptions(context=CONTEXT))


def serve(args: Any) -> None:
    """Serve until the parent closes our input."""
    sock = listen("127.0.0.1", 0)
    model = untrained_model(args.shape, args.dtype, args.device)
    settings = ServerSettings(http_workers=args.workers, temperature=0.0)
    server = Server({"random": lambda: model}, settings, Limits(slots=args.slots, queue=None))
    run_until_closed(server, sock, model.device.info.description)


async def clients(args: Any) -> tuple[float, float, list[tuple[float, int, list[float], str]]]:
    """Be `--count` clients from the number `--first`.

    Returns when they began and ended, and each answer's time to the first token, tokens, gaps and error.
    """
    target, fields = ServerTarget.of(f"http://127.0.0.1:{args.port}"), KINDS[args.kind]
    answers: list[tuple[float, int, list[float], str]] = []

    async def client(number: int) -> None:
        for turn in range(args.requests):
            messages = messages_of(number + 1000 * turn)
            body = {"model": "default", "messages": messages, "max_tokens": args.tokens, "ignore_eos": True}
            one = await ask(target, body | fields, 300.0)
            answers.append((one.first, one.tokens, one.gaps, one.error))

    began = time.monotonic()
    await asyncio.gather(*(client(args.first + number) for number in range(args.count)))
    return began, time.monotonic(), answers


def load(
    args: Any, port: int, kind: str, count: int, tokens: int, requests: int, first: int
) -> tuple[list[Any], float]:
    """Let processes be so many clients; return all answers, and the seconds from the first request to the last end."""
    parts = [len(range(number, count, args.client_processes)) for number in range(args.client_processes)]
    processes: list[subprocess.Popen[str]] = []
    for part in filter(None, parts):
        command = [sys.executable, "-m", "benchmarks.serve_speed", "--be-clients", f"--kind={kind}", f"--port={port}"]
        command += [f"--first={first}", f"--count={part}", f"--tokens={tokens}", f"--requests={requests}"]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        first += part
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    came = [json.loads(process.communicate()[0]) for process in processes]
    seconds = max(end for _, end, _ in came) - min(begin for begin, _, _ in came)  # one clock for all processes
    return [answer for _, _, answers in came for answer in answers], seconds


def measure(args: Any, workers: int) -> list[str]:
    """Return a row for each load of a server with so many HTTP workers."""
    command = [sys.executable, "-m", "benchmarks.serve_speed", "--serve", f"--workers={workers}"]
    command += [f"--{name}={getattr(args, name)}" for name in ("device", "shape", "dtype")]
    command += [f"--slots={args.slots or max(args.clients)}"]
    rows: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port, _, device = process.stdout.readline().strip().partition(" ")
        print(f"{workers} HTTP workers, {device}", file=sys.stderr, flush=True)
        first = 0
        for count in args.clients:
            for kind in args.kinds.split(","):
                load(args, int(port), kind, count, min(16, args.tokens), 1, first)
                first += count
                children, before = children_of(process.pid), seconds_of(process.pid)
                beside = sum(sum(seconds_of(child).values()) for child in children)
                answers, seconds = load(args, int(port), kind, count, args.tokens, args.requests, first)
                first += count
                used = sum(seconds_of(process.pid).values()) - sum(before.values())
                beside = sum(sum(seconds_of(child).values()) for child in children) - beside
                rows.append(row_of([str(workers), str(count), kind], answers, seconds, used, beside))
                print(rows[-1], file=sys.stderr, flush=True)
        process.stdin.close()
    return rows


def row_of(cells: list[str], answers: list[Any], seconds: float, used: float, beside: float) -> str:
    """Return a row of the table."""
    good = [answer for answer in answers if not answer[3]]
    if len(good) < len(answers):
        wrong = next(answer[3] for answer in answers if answer[3])
        print(f"{len(answers) - len(good)} of {len(answers)} requests failed: {wrong}", file=sys.stderr)
    tokens = sum(answer[1] for answer in good)
    if not tokens:
        return f"| {' | '.join([*cells, 'failed', *'-----'])} |"
    waits, gaps = [1e3 * answer[0] for answer in good], [1e3 * gap for answer in good for gap in answer[2]]
    times = [at(waits, 50), at(waits, 95), at(gaps, 95)]
    cells += [f"{tokens / seconds:,.0f}", *(f"{one:,.1f}" for one in times)]
    cells += [f"{1e6 * used / tokens:.1f}", f"{1e6 * beside / tokens:.1f}"]
    return f"| {' | '.join(cells)} |"


def at(values: list[float], percent: int) -> float:
    """Return a quantile."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--clients", type=positive_ints, default=[64, 256])
    parser.add_argument("--http-workers", type=numbers, default=[0, 4], help="processes for HTTP, a server for each")
    parser.add_argument("--tokens", type=positive_int, default=128)
    parser.add_argument("--requests", type=positive_int, default=2, help="of each client")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--slots", type=int, default=0, help="sequences of a device call; 0: as many as clients")
    parser.add_argument("--client-processes", type=positive_int, default=6)
    parser.add_argument("--serve", action="store_true", help="be the server")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--be-clients", action="store_true", help="be some of the clients")
    for name in ("port", "first", "count"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--kind", default="greedy")
    args = parser.parse_args()
    if args.serve:
        serve(args)
    elif args.be_clients:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(asyncio.run(clients(args))))
    else:
        rows = [row for workers in args.http_workers for row in measure(args, workers)]
        heads = "HTTP workers | clients | requests | tokens/s | first token ms p50 | p95 | between chunks ms p95"
        heads += " | engine's process µs a token | workers µs"
        print(f"\n| {heads} |\n|{' --- |' * 9}")
        print("\n".join(rows))


if __name__ == "__main__":
    main()
