"""Downloads from a hub on this machine: what is fetched, that progress is told, and that Ctrl-C leaves nothing half."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base import progress
from volumetric.base.errors import CheckpointError
from volumetric.loaders import open_model
from volumetric.loaders.model_location import resolve

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """One repository, ``some/tiny``, of the files of a directory."""

    def __init__(self, home: Path, sent: Callable[[str, int], None], *args: Any) -> None:
        self._home, self._sent = home, sent
        super().__init__(*args)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = {str(p.relative_to(self._home)): p.read_bytes() for p in self._home.rglob("*") if p.is_file()}
        if path.startswith(f"/some/tiny/resolve/{REVISION}/"):
            name = path.removeprefix(f"/some/tiny/resolve/{REVISION}/")
            self._answer(files[name], name)
        elif "/tree/" in path:
            oid = lambda data: hashlib.sha1(data).hexdigest()  # noqa: E731
            listed = [{"type": "file", "path": n, "size": len(d), "oid": oid(d)} for n, d in files.items()]
            self._answer(json.dumps(listed).encode())
        else:
            siblings = [{"rfilename": name} for name in files]
            self._answer(json.dumps({"id": "some/tiny", "sha": REVISION, "siblings": siblings}).encode())

    def _answer(self, content: bytes, name: str = "") -> None:
        start = int((self.headers["Range"] or "bytes=0-")[6:].partition("-")[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            for at in range(start, len(content), 1 << 13):
                self.wfile.write(content[at : at + (1 << 13)])
                self._sent(name, at)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class calls it so)
        pass


class Served:
    """What the hub serves, and what happens meanwhile.

    Attributes
    ----------
    home, cache : directory that is served, and that of the client
    sent : names of files, once for each piece that went out
    interrupt : whether the weights are interrupted in their middle
    """

    def __init__(self, home: Path, cache: Path) -> None:
        self.home, self.cache, self.sent, self.interrupt = home, cache, [], False
        self.heard = threading.Event()

    def hear(self, number: int, frame: object) -> None:
        self.heard.set()
        raise KeyboardInterrupt

    def tell(self, name: str, at: int) -> None:
        self.sent.append(name)
        if self.interrupt and name == "model.safetensors" and at:
            self.interrupt = False
            os.kill(os.getpid(), signal.SIGINT)
            self.heard.wait(60)
            time.sleep(0.2)  # for what follows in the main thread, before the rest of the file goes out


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A hub with a tiny model, and an empty cache."""
    home, cache = tmp_path / "served", tmp_path / "cache"
    served = Served(home, cache)
    shutil.copytree(TINY / "llama", home)
    (home / "onnx").mkdir()
    (home / "onnx" / "config.json").write_text("{}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, home, served.tell))
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in (
        ("ENDPOINT", address),
        ("HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"),
        ("HF_HUB_CACHE", str(cache)),
        ("DOWNLOAD_CHUNK_SIZE", 1 << 12),
        ("HF_HUB_DISABLE_XET", True),
        ("HF_HUB_OFFLINE", False),
    ):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_is_downloaded_weights_last_and_opens_offline(
    hub: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = hub.home
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules += [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}, {"path": "../x"}]
    (home / "modules.json").write_text(json.dumps(modules))
    (home / "1_Pooling").mkdir()
    (home / "1_Pooling" / "config.json").write_text("{}")
    monkeypatch.setattr(progress, "EVERY", -1.0)
    caplog.set_level("INFO", logger="volumetric.base.progress")
    found = resolve("some/tiny").directory
    assert (found / "1_Pooling" / "config.json").is_file()
    assert not (found / "onnx").exists()
    names = [name for name in hub.sent if name]
    assert set(names[names.index("model.safetensors") :]) == {"model.safetensors"}
    size = progress.byte_size((home / "model.safetensors").stat().st_size)
    assert f"downloading some/tiny: {size} of {size}" in caplog.messages
    assert resolve("some/tiny", offline=True).directory == found
    assert not list(hub.cache.rglob("*.incomplete"))


def test_ctrl_c_ends_a_download_and_leaves_nothing_half_written(hub: Served) -> None:
    hub.interrupt = True
    before = signal.signal(signal.SIGINT, hub.hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            resolve("some/tiny")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [path for path in hub.cache.rglob("*.safetensors") if path.exists()]
    with pytest.raises(CheckpointError, match="nor in the Hugging Face cache"):
        resolve("some/tiny", offline=True)
    model = open_model("some/tiny")
    whole = open_model(TINY / "llama")
    for key, store in model.params.items():
        np.testing.assert_array_equal(store.values(), whole.params[key].values())
    assert not list(hub.cache.rglob("*.incomplete"))
