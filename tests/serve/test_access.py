"""How requests come in: paths and methods as clients write them, pages of other origins, and bounded figures."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.generate.letters import letters
from tests.serve.servers import PATIENCE, Address, running
from volumetric.cli import main
from volumetric.serve.middleware import plain_path

PAGE = "https://page.example"


@pytest.fixture(scope="module")
def server():
    with running({"letters": letters(), "org/other": letters()}, api_key="sesame", origins=(PAGE,)) as address:
        yield address


def ask(
    address: Address, method: str, path: str, body: Any = None, key: str = "sesame", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=PATIENCE)
    told = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, None if body is None else json.dumps(body), told)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/models", "/v1/models"),
        ("/", "/"),
        ("//", "/"),
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1//models/", "/v1/models"),
        ("http://127.0.0.1:8080/health", "/health"),
        ("HTTPS://here", "/"),
        ("*", "*"),
    ],
)
def test_paths_are_made_plain(path: str, known: str):
    assert plain_path(path) == known


@pytest.mark.thorough
def test_paths_may_be_written_in_many_ways(server: Address):
    for path in ("//v1/completions", "/v1/completions/", f"{server.url}/v1/completions", "/v1//completions"):
        assert ask(server, "POST", path, {"prompt": "a", "max_tokens": 1})[0] == 200, path
    for path in ("/v1/models", "/v1/models/", "/models//"):
        assert json.loads(ask(server, "GET", path)[2])["object"] == "list", path
    assert json.loads(ask(server, "GET", "/v1/models/org/other")[2])["id"] == "org/other"


@pytest.mark.thorough
def test_methods_are_told(server: Address):
    status, headers, body = ask(server, "OPTIONS", "/v1/completions", key="")
    assert (status, headers["allow"], body) == (204, "OPTIONS, POST", b"")
    status, headers, body = ask(server, "HEAD", "/v1/models")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_pages_of_named_origins_can_read_errors(server: Address):
    preflight = {
        "Origin": PAGE,
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "authorization,content-type,x-stainless-os",
        "Access_Control_Request_Private_Network": "true",
    }
    status, headers, _ = ask(server, "OPTIONS", "/v1/completions", key="", **preflight)
    assert (status, headers["access-control-allow-origin"]) == (200, PAGE)
    assert headers["access-control-allow-private-network"] == "true"
    assert "x-stainless-os" in headers["access-control-allow-headers"]
    for status, path, key, body in (
        (200, "/v1/completions", "sesame", {"prompt": "a"}),
        (400, "/v1/completions", "sesame", {}),
        (401, "/v1/completions", "wrong", {}),
        (404, "/v1/nothing", "sesame", {}),
    ):
        got, headers, _ = ask(server, "POST", path, body, key, Origin=PAGE)
        assert (got, headers.get("access-control-allow-origin")) == (status, PAGE)
        assert "retry-after" in headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in ask(server, "POST", path, body, key, Origin="https://else")[1]


def test_figures_have_a_bound(server: Address):
    for number in range(20):
        ask(server, "GET", f"/made/up/{number}", key="wrong")
        ask(server, "GET", f"/v1/models/{number}", key="wrong")
    paths = {path for path, _ in server.server.serving.answered}
    assert "other" in paths
    assert not [path for path in paths if "up" in path or path.startswith("/v1/models/")]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--port", "70000"], "cannot listen on 127.0.0.1 port 70000"),
        (["--api-key", ""], "the API key is empty"),
        (["--api-key", "clé"], "invalid in an HTTP header"),
        (["--api-key-file", "nowhere.key:2"], "nowhere.key"),
        (["--cors", "example.org"], "is not an origin"),
        (["--drain", "nan"], "drain must be 0 seconds or more"),
    ],
)
def test_what_cannot_be_served_is_told_at_once(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "nowhere", *flags]) in (1, 2)
    error = capsys.readouterr().err
    assert told in error
    assert "defect" not in error


def test_keys_in_files_are_read_as_editors_write_them(tmp_path, monkeypatch: pytest.MonkeyPatch):
    from volumetric.cli.exits import UsageError
    from volumetric.cli.serve import KEY, AddressOptions

    (tmp_path / "key").write_bytes(b"\xef\xbb\xbfsesame \r\nof no interest\r\n")
    (tmp_path / "other").write_text("lentil")
    files = str(tmp_path / "key"), f"{tmp_path / 'other'}:2.5"
    assert AddressOptions(api_key_file=files).keys() == {"sesame": 1.0, "lentil": 2.5}
    with pytest.raises(UsageError, match="has the same key as another file"):
        AddressOptions(api_key_file=(*files, files[0])).keys()
    monkeypatch.setenv(KEY, " sesame\n")
    assert AddressOptions().keys() == {"sesame": 1.0}
    monkeypatch.setenv(KEY, "")
    assert AddressOptions().keys() == {}
    assert AddressOptions(cors=("HTTPS://Page.example/", "*")).origins() == ("https://page.example", "*")
