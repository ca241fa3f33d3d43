"""Chatting with a server: the same commands, and what is told where there is none."""

from __future__ import annotations

import io

import pytest

from tests.generate.letters import letters
from tests.serve.servers import Address, running
from tests.serve.strangers import answered, said, stranger, streamed


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


@pytest.mark.thorough
def test_answers_come_from_the_server(talk, tmp_path):
    code, out, err = talk("ab", "/set max_tokens 2", "a", "/set", f"/save {tmp_path / 'talk.json'}")
    assert (code, out) == (0, "cdefgh\nbc\n")
    assert "letters at" in err
    assert "generated 7 tok" in err
    assert "max_tokens=2" in err
    code, out, _ = talk(f"/load {tmp_path / 'talk.json'}", "/regen", flags=("--max-tokens", "3"))
    assert (code, out) == (0, "bcd\n")


@pytest.mark.thorough
def test_what_goes_wrong_is_told(talk, monkeypatch):
    assert "no model 'words'" in talk(flags=("--model", "words"))[2]
    assert "does not respond" in talk(url="http://127.0.0.1:1")[2]
    assert "not a URL of a server" in talk(url="here")[2]
    code, out, err = talk("/set temperature hot", "/set seed 1", "a" * 40, "/regen", "ab", flags=())
    assert (code, out) == (0, "cdefgh\n")
    assert "temperature must be" in err
    assert "40 tokens" in err
    assert talk(flags=("--lora", "x"))[0] == 2
    monkeypatch.setenv("VOLUMETRIC_API_KEY", "wrong")
    code, _, err = talk("ab")
    assert code == 1
    assert "API key" in err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("answer", "out", "told"),
    [
        (streamed(said("Hel"), said("lo"), "data: [DONE]"), "Hello\n", ""),
        (streamed(said("Hello", error=None), 'data:{"choices":null}', {"usage": {}}, "data:[DONE]"), "Hello\n", ""),
        (streamed(": wait", {"choices": [{"delta": None}, None]}, said("Hello"), "data: [DONE]"), "Hello\n", ""),
        (streamed(said("Hello"), whole=False), "Hello\n", "broke off: the server closed"),
        (streamed(said("Hello")), "Hello\n", "broke off: the server closed"),
        (streamed(said("Hello"), "data: [1]"), "Hello\n", "expected a chunk of a chat completion, got '[1]'"),
        (streamed(said("Hello"), "data: {"), "Hello\n", "expected a chunk of a chat completion"),
        (streamed({"error": {"message": "lost"}}), "", "the server ended the answer: lost"),
        (streamed({"error": "lost"}), "", "the server ended the answer: lost"),
        (answered(b'{"choices": [{"message": {"content": "Hello"}}]}'), "", "broke off"),
        (answered(b"no", status="500 Broken"), "", "the server refused the request: no"),
        (answered(b"", status="503 Busy"), "", "the server refused the request: Busy"),
        (b"SSH-2.0\r\n", "", "does not respond"),
        (b"", "", "does not respond"),
    ],
)
def test_what_others_answer_is_read_or_told(talk, answer: bytes, out: str, told: str):
    with stranger(answer) as url:
        code, got, err = talk("hi", url=url)
    assert (code, got) == (0, out)
    assert told in err
    assert ("error:" in err) == bool(told)
    assert "defect" not in err
    assert "inspect" not in err


def test_an_answer_that_broke_off_stays_as_far_as_it_came(talk, tmp_path):
    with stranger(streamed(said("Hello"), whole=False)) as url:
        assert talk("hi", f"/save {tmp_path / 'talk.json'}", url=url)[0] == 0
    assert '"Hello"' in (tmp_path / "talk.json").read_text()


@pytest.mark.parametrize("models", [b"[1]", b'{"data": [1]}', b"<html>", b'{"data": null}', b'{"data": []}'])
def test_what_has_no_models_is_told(talk, models: bytes):
    with stranger(b"", answered(models)) as url:
        code, _, err = talk("hi", url=url)
    assert code == 1
    assert "not a server of OpenAI's API" in err or "has no model" in err
    assert "defect" not in err


@pytest.mark.parametrize(("url", "key"), [("http://a b", "-"), ("http://..", "-"), ("http://a/ü", "-"), (None, "a\nb")])
def test_what_cannot_be_asked_for_is_told(talk, monkeypatch, url: str | None, key: str):
    monkeypatch.setenv("VOLUMETRIC_API_KEY", key)
    code, _, err = talk("hi", **({} if url is None else {"url": url}))
    assert code in (1, 2)
    assert "not a URL" in err or "invalid in an HTTP header" in err
