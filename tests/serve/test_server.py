"""The server itself: bodies of all kinds, clients that leave, company, ends, and what is told beside the answers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

import volumetric
from tests.generate.letters import letters, recurrent_letters, write_letters
from tests.serve.servers import JSON, PATIENCE, ask, running, slow_letters, until
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits

ROOT = Path(volumetric.__file__).parents[1]


@pytest.fixture(scope="module")
def server():
    models = {"letters": letters(), "random": recurrent_letters(ReferenceDevice())}
    limits = Limits(slots=8)
    with running(models, limits=limits, max_body=4096, hosts=frozenset({"127.0.0.1"})) as address:
        yield address


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b"\xff\xfe{}", 400, "not JSON"),
        (b'{"prompt": "a"} {}', 400, "not JSON"),
        (b'{"messages": ' + b"[" * 2000 + b"]" * 2000 + b"}", 400, "not JSON"),
        (b'{"messages": null}', 400, "messages"),
        (b"{}", 400, "messages is missing"),
        (
            b'{"messages": [{"role": "user", "content": "a"}], "logit_bias": {"99": 1}}',
            400,
            "logit_bias names token 99",
        ),
        (b'{"model": 5, "messages": []}', 400, "model"),
        (
            b'{"messages": [{"role": "user", "content": "a"}], "logit_bias": {"1": 1e308}}',
            400,
            "is not a number of at most 1,000,000",
        ),
        (b'{"messages": [{"role": "user", "content": "a"}], "logit_bias": {"1": null}}', 400, "logit_bias: expected"),
        (b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', 400, "content[0].text is missing"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": -2}', 400, "max_tokens must be"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, ""),
        (b'{"messages": [{"role": "user", "content": "a"}], "seed": 1e400}', 400, ""),
        (b" " * 5000, 413, "more than 4096 bytes"),
    ],
)
def test_bad_bodies_are_told_in_openai_s_shape(server, body, status, message):
    got, told = ask(server, "/v1/chat/completions", body)
    assert got == status, told
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert message in told["error"]["message"]


@pytest.mark.thorough
def test_other_kinds_of_bodies_paths_and_methods_are_refused(server):
    assert ask(server, "/v1/chat/completions", b"{}", {"Content-Type": "text/plain"})[0] == 415
    status, told = ask(server, "/v1/complete", b"{}")
    assert status == 404
    assert "/v1/completions" in told["error"]["message"]
    status, told = ask(server, "/v1/completions")
    assert (status, told["error"]["message"]) == (405, "/v1/completions allows POST, not GET")
    status, told = ask(server, "/tokenize", b"{}", JSON | {"Host": "evil.example"})
    assert (status, told["error"]["code"]) == (403, "unknown_host")


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": None, "audio": None, "made_up": None, "seed": None, "tools": None},
        {"max_tokens": -1},
        {"max_completion_tokens": -1},
        {"top_p": 0, "temperature": 1},
        {"chat_template_kwargs": {"self": 1, "template": 2}},
        {"messages": [{"role": "user", "content": "ab", "name": None, "refusal": None}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    ],
)
def test_what_clients_say_to_ask_for_nothing_is_no_error(server, fields: dict[str, Any]):
    body = {"messages": [{"role": "user", "content": "ab"}]} | fields
    status, told = ask(server, "/v1/chat/completions", json.dumps(body).encode())
    assert (status, told) == (200, told)
    assert told["choices"][0]["message"]["content"] == "cdefgh"


@pytest.mark.thorough
def test_a_lenient_server_leaves_out_what_it_does_not_know(caplog: pytest.LogCaptureFixture):
    body = {
        "messages": [{"role": "user", "content": "ab", "mood": "good"}],
        "keep_warm": 5,
        "mirostat": 2,
        "stream": True,
        "stream_options": {"speed": None},
    }
    with running({"letters": letters()}, lenient=True) as address:
        status, told = ask(address, "/v1/chat/completions", json.dumps(body).encode())
        assert status == 200
        assert told.endswith("data: [DONE]\n\n")
        status, told = ask(address, "/v1/chat/completions", json.dumps(body | {"temperature": "hot"}).encode())
        assert (status, told["error"]["param"]) == (400, "temperature")
        status, told = ask(address, "/v1/models/letters")
    for name in ("'keep_warm'", "'mirostat'", "'messages[0].mood'", "'stream_options.speed'"):
        assert f"a request has the field {name}" in caplog.text
    assert "good" not in caplog.text
    assert "max_tokens" not in told["meta"]["sampling"]


def test_refusals_of_the_assistant_are_read(server):
    said = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}, {"role": "user", "content": "b"}]
    status, told = ask(server, "/tokenize", json.dumps({"messages": said}).encode())
    assert (status, told["tokens"]) == (200, [0, 1])
    lost = json.dumps({"messages": [{"role": "assistant", "content": [{"type": "refusal"}]}]}).encode()
    assert ask(server, "/tokenize", lost)[1]["error"]["param"] == "messages[0].content[0].refusal"


def test_tokens_are_counted(server):
    assert ask(server, "/tokenize", b'{"prompt": "abc"}') == (
        200,
        {"count": 3, "max_model_len": 32, "tokens": [0, 1, 2]},
    )
    status, told = ask(
        server, "/tokenize", b'{"messages": [{"role": "user", "content": "ab"}], "return_token_strs": true}'
    )
    assert (status, told["tokens"], told["token_strs"]) == (200, [0, 1], ["a", "b"])
    assert ask(server, "/detokenize", b'{"tokens": [2, 1]}') == (200, {"prompt": "cb"})
    status, told = ask(server, "/detokenize", b'{"tokens": [-1]}')
    assert status == 400
    assert "volumetric" not in told["error"]["message"]  # commands are for who has the program before them
    assert ask(server, "/tokenize", b"{}")[0] == 400


def test_paths_are_there_with_and_without_their_version(server):
    for path in ("/chat/completions", "/v1/chat/completions"):
        status, told = ask(server, path, b'{"messages": [{"role": "user", "content": "ab"}]}')
        assert (status, told["choices"][0]["message"]["content"]) == (200, "cdefgh")
    assert ask(server, "/v1/health") == (200, {"status": "ok"})


def test_figures_are_in_prometheus_format(server):
    ask(server, "/v1/completions", b'{"prompt": "a"}')
    status, text = ask(server, "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'volumetric_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line) for line in lines)
    counts = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert counts['volumetric_requests_total{endpoint="/v1/completions",status="200"}'] >= 1
    assert counts['volumetric_generated_tokens_total{model="letters"}'] >= 8
    kinds = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name) for name in counts} <= kinds


def test_the_page_is_whole_and_loads_nothing(server):
    status, text = ask(server, "/")
    assert status == 200
    assert "<title>volumetric</title>" in text
    assert not re.search(r"""(src|href)=|https?://""", text)


def test_a_client_that_leaves_gives_its_seat_back(server):
    body = json.dumps({"model": "random", "prompt": "ab", "ignore_eos": True, "stream": True, "n": 2}).encode()
    scheduler = server.server.serving.models["random"].engine.scheduler
    for path_ends in (False, True):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
            whole = body if path_ends else body.replace(b'"stream": true', b'"stream": false')
            sock.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: " + str(len(whole)).encode() + b"\r\n\r\n" + whole
            )
            if path_ends:
                sock.recv(100)
    until(lambda: scheduler.idle)
    assert not server.server.serving.models["random"].engine.waiting


@pytest.mark.thorough
def test_a_text_is_the_same_alone_and_in_company(server):
    def text(number: int) -> str:
        with server.client() as client:
            answer = client.completions.create(
                model="random",
                prompt="abcdefgh"[: 1 + number % 5],
                seed=number,
                temperature=1.2,
                max_tokens=16,
                extra_body={"ignore_eos": True},
            )
        return answer.choices[0].text

    alone = [text(number) for number in range(32)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(text, range(32))) == alone


@pytest.mark.thorough
def test_streams_under_way_end_well_or_are_told_when_the_server_ends():
    with running({"random": slow_letters()}, drain=0.3) as address, address.client() as client:
        stream = client.completions.create(
            model="random", prompt="ab", extra_body={"ignore_eos": True}, temperature=1, stream=True
        )
        next(iter(stream))
        address.server.stop()
        with pytest.raises(openai.APIError, match="shut down"):
            list(stream)


@pytest.mark.thorough
def test_the_command_serves_and_ends_when_told(tmp_path):
    directory = write_letters(tmp_path / "letters")
    command = [sys.executable, "-m", "volumetric", "serve", str(directory), "--device", "reference", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if line.startswith(("ready", "error")))
        port = int(re.findall(r":(\d+)/v1", ready)[0])
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-") as client:
            assert client.completions.create(model="letters", prompt="a", temperature=0).choices[0].text == "bcdefgh"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert connection.recv(99).startswith(b"HTTP/1.1 400")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        log = process.stderr.read()
    assert all(json.loads(line)["time"] for line in log.splitlines())  # every line is an object, whoever writes it
    assert '"path": "/v1/completions", "status": 200' in log
    assert "abcdefgh" not in log  # what was asked and answered is nobody's business


def test_another_address_takes_a_key(capsys):
    assert volumetric_main("serve", "nowhere", "--host", "0.0.0.0") == 2
    assert "there is no key" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert volumetric_main("serve", "nowhere", "--port", port) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err


def volumetric_main(*arguments: str) -> int:
    from volumetric.cli import main

    return main(arguments)
