"""The benchmark of servers: what its clients see is what the server has said."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.generate.letters import letters
from tests.serve.servers import Address, running
from tests.serve.strangers import answered, said, stranger, streamed
from volumetric.base.errors import SpecError
from volumetric.bench.serve import ServerTarget, ask
from volumetric.cli import main


@pytest.fixture(scope="module")
def server():
    with running({"letters": letters(context=2048, context_length=2048)}) as address:
        yield address


@pytest.mark.thorough
def test_a_client_reads_a_stream(server: Address):
    body = {"messages": [{"role": "user", "content": "ab"}]}
    seen = asyncio.run(ask(ServerTarget.of(server.url), body, 60.0))
    assert (seen.text, seen.tokens, seen.prompt_tokens, seen.error) == ("cdefgh", 7, 2, "")
    assert seen.first > 0
    wrong = asyncio.run(ask(ServerTarget.of(f"{server.url}/v1"), {"messages": []}, 60.0))
    assert wrong.error.startswith("400")
    nobody = asyncio.run(ask(ServerTarget.of("http://127.0.0.1:1"), body, 60.0))
    assert "ConnectionRefusedError" in nobody.error


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (streamed(said("a"), said("b"), "data: [DONE]"), ""),
        (streamed(said("a"), {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None}), ""),
        (streamed(said("a"), whole=False), "IncompleteReadError"),
        (streamed(said("a")), "the stream ended before the answer"),
        (streamed({"error": {"message": "lost"}}), "lost"),
        (streamed("data: [1]"), "expected a chunk of a chat completion"),
        (answered(b"<html>", "text/html"), "not a stream of a chat completion"),
        (answered(b'{"error": {"message": "full"}}', status="429 Later"), "429 full"),
        (b"", "not HTTP"),
        (b"SSH-2.0\r\n", "not HTTP"),
    ],
)
def test_answers_that_are_none_are_failures(answer: bytes, told: str):
    with stranger(answer) as url:
        seen = asyncio.run(ask(ServerTarget.of(url), {"messages": []}, 20.0))
    assert told in seen.error
    assert bool(seen.error) == bool(told)


@pytest.mark.parametrize("url", ["ftp://a", "here", "http://", "http://a:b"])
def test_what_is_no_server_is_refused(url: str):
    with pytest.raises(SpecError, match="not a URL"):
        ServerTarget.of(url)


@pytest.mark.thorough
def test_loads_are_told_in_rows(server: Address, capsys: pytest.CaptureFixture[str]):
    flags = ["--clients", "1,3", "--requests", "3", "-n", "5", "-r", "1", "-o", "json", "--field", "stop=h"]
    assert main(["bench", "--suite", "serve", "--url", f"{server.url},{server.url}/v1", *flags]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["clients"], row["good"], row["failed"]) for row in rows] == [(1, 3, 0)] * 2 + [(3, 3, 0)] * 2
    assert all(row["tokens"] > 0 for row in rows)
    assert main(["bench", "--suite", "serve", "--url", server.url, *flags, "--field", "speed=high"]) == 1
    assert "unknown field" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.parametrize(
    "flags", [["--clients", "a"], ["--clients", "0"], ["--url", "x"], ["--field", "a"], ["-n", "0"]]
)
def test_wrong_flags_are_told(flags: list[str]):
    assert main(["bench", "--suite", "serve", *flags]) == 2
