"""Chatting with a server: the same commands, and what is told where there is none."""

from __future__ import annotations

import io

import pytest

from tests.generate.letters import letters
from tests.serve.servers import Address, running


@pytest.fixture(scope="module")
def server():
    with running({"letters": letters()}, api_key="sesame") as address:
        yield address


@pytest.fixture
def talk(run, server: Address, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VOLUMETRIC_API_KEY", "sesame")

    def call(*lines: str, flags: tuple[str, ...] = (), url: str = server.url) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))
        return run("chat", "--url", url, *flags)

    return call


def test_answers_come_from_the_server(talk, tmp_path):
    code, out, err = talk("ab", "/set max_tokens 2", "a", "/set", f"/save {tmp_path / 'talk.json'}")
    assert (code, out) == (0, "cdefgh\nbc\n")
    assert "letters at" in err
    assert "generated 7 tok" in err
    assert "max_tokens=2" in err
    code, out, _ = talk(f"/load {tmp_path / 'talk.json'}", "/regen", flags=("--max-tokens", "3"))
    assert (code, out) == (0, "bcd\n")


def test_what_goes_wrong_is_told(talk, monkeypatch):
    assert "no model 'words'" in talk(flags=("--model", "words"))[2]
    assert "does not answer" in talk(url="http://127.0.0.1:1")[2]
    assert "no URL of a server" in talk(url="here")[2]
    code, out, err = talk("/set temperature hot", "/set seed 1", "a" * 40, "/regen", "ab", flags=())
    assert (code, out) == (0, "cdefgh\n")
    assert "temperature must be" in err
    assert "40 tokens" in err
    assert talk(flags=("--lora", "x"))[0] == 2
    monkeypatch.setenv("VOLUMETRIC_API_KEY", "wrong")
    code, _, err = talk("ab")
    assert code == 1
    assert "API key" in err
