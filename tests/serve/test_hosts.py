"""Names under which a server may be asked for: by flags, and in headers of all kinds."""

from __future__ import annotations

import pytest

from tests.generate.letters import letters
from tests.serve.servers import ask, running
from volumetric.cli.exits import UsageError
from volumetric.cli.serve import AddressOptions
from volumetric.serve.middleware import host_of, is_known


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8080", "localhost"),
        ("localhost.", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:8080", "::1"),
        ("::1", "::1"),
        ("localhost:evil.example", "localhost:evil.example"),
        ("evil.example:", "evil.example"),
        ("", ""),
    ],
)
def test_headers_are_read(header: str, name: str):
    assert host_of(header) == name


def known(options: AddressOptions, *headers: str) -> list[str]:
    hosts = options.hosts()
    assert hosts is not None
    return [one for one in headers if is_known(host_of(one), hosts, addresses=not options.local)]


ASKED = (
    "localhost:8080",
    "127.0.0.1",
    "[::1]:1",
    "evil.example",
    "192.168.1.7:8080",
    "llm.example.org",
    "[fe80::1]",
    "",
)


def test_this_machine_answers_to_its_own_names_alone():
    assert known(AddressOptions(), *ASKED) == ["localhost:8080", "127.0.0.1", "[::1]:1"]
    allowed = AddressOptions(allow_host=("LLM.example.org",))
    assert known(allowed, *ASKED) == ["localhost:8080", "127.0.0.1", "[::1]:1", "llm.example.org"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7"])
@pytest.mark.parametrize("no_auth", [False, True])
def test_other_addresses_check_names_too(host: str, no_auth: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("volumetric.cli.serve.socket.gethostname", lambda: "box.lan")
    options = AddressOptions(host=host, no_auth=no_auth)
    assert known(options, *ASKED) == ["localhost:8080", "127.0.0.1", "[::1]:1", "192.168.1.7:8080", "[fe80::1]"]
    assert known(options, "box.lan:8080", "box.local", "box.evil.example") == ["box.lan:8080", "box.local"]
    assert known(AddressOptions(host="llm.example.org"), *ASKED)[-2:] == ["llm.example.org", "[fe80::1]"]
    assert AddressOptions(host=host, allow_host=("*",)).hosts() is None


@pytest.mark.parametrize("name", ["http://a.example", "a.example:8080", "a b", "", "a/b"])
def test_what_is_no_name_is_refused(name: str):
    with pytest.raises(UsageError, match="is not a host name"):
        AddressOptions(allow_host=(name,)).hosts()


@pytest.mark.thorough
def test_a_server_tells_what_lets_a_name_in():
    with running({"letters": letters()}, hosts=frozenset({"llm.example.org"}), addresses=True) as address:
        for host, status in {"llm.example.org": 200, "10.0.0.1:80": 200, "evil.example": 403, "1.2.3": 403}.items():
            assert ask(address, "/v1/models", None, {})[0] == 200  # by the address
            assert (
                ask(address, "/tokenize", b'{"prompt": "a"}', {"Content-Type": "application/json", "Host": host})[0]
                == status
            )
        told = ask(address, "/tokenize", b"{}", {"Content-Type": "application/json", "Host": "evil.example"})[1]
        assert "--allow-host" in told["error"]["message"]
