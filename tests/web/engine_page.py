"""A page that has loaded the engine."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.serve.chromium import Page
from tests.web.static_server import StaticServer

_PATIENCE = 600.0
"""Seconds for one expression: a software adapter compiles a pipeline for seconds."""
_HELPERS = """
globalThis.packed = values => {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return {kind: values.constructor.name, data: btoa(text)};
};
globalThis.plain = value => {
  if (ArrayBuffer.isView(value)) return packed(value);
  if (value instanceof ArrayBuffer) return packed(new Uint8Array(value));
  if (Array.isArray(value)) return value.map(plain);
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]));
};
"""
_DTYPES = {"Float32Array": np.float32, "Int32Array": np.int32, "Uint32Array": np.uint32, "Uint8Array": np.uint8}


class EngineFailure(AssertionError):  # noqa: N818 - what the page reports, which a test may expect
    """An error that the engine raised.

    Attributes
    ----------
    name, message : of the error
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name: str = name
        self.message: str = message


class EnginePage:
    """A page on which expressions may use ``engine`` (the module), ``net`` (the address of `folder`) and ``load``.

    Parameters
    ----------
    page, server : the browser's page, and the server that it loads from
    folder : what the server hands out as ``net``
    """

    def __init__(self, page: Page, server: StaticServer, folder: Path) -> None:
        self.page, self.server, self.folder = page, server, folder
        self._count = 0
        self.expects_complaints = False

    def open(self) -> None:
        """Load the page and the engine."""
        self.page.open("about:blank")
        self.page.forget_complaints()
        self.page.open(f"{self.server.url}/")
        self.page.wait("document.title === 'engine'")
        self.page.value(_HELPERS)
        self.page.value(f"globalThis.net = {self.server.url!r} + '/net/'; 0")
        self.run(f"globalThis.engine = await import('{self.server.url}/engine/engine.js'); return null")

    def end(self) -> None:
        """Leave the page; fails if it has reported errors."""
        complaints = self.page.complaints()
        self.page.open("about:blank")
        assert self.expects_complaints or complaints == [], complaints

    def run(self, body: str, **names: Any) -> Any:
        """Return what the body of an async function returns; arrays come as NumPy's.

        Parameters
        ----------
        names : values that the body may use; NumPy arrays become typed arrays

        Raises
        ------
        EngineFailure : it throws
        """
        self._count += 1
        place = f"result{self._count}"
        values = "".join(f"const {name} = {_literal(value)};\n" for name, value in names.items())
        self.page.value(
            f"globalThis.{place} = null; (async () => {{ {values} {body} }})().then("
            f"value => {{ {place} = {{value: plain(value)}}; }}, "
            f"error => {{ {place} = {{error: [error.name, String(error.message)], stack: error.stack}}; }}); 0"
        )
        until = time.monotonic() + _PATIENCE
        while (result := self.page.value(place)) is None:
            assert time.monotonic() < until, "the page does not answer"
            time.sleep(0.01)
        if "error" in result:
            raise EngineFailure(*result["error"])
        return _arrays(result.get("value"))

    def failure(self, body: str, **names: Any) -> EngineFailure:
        """Return the error that the body throws."""
        try:
            result = self.run(body, **names)
        except EngineFailure as failure:
            return failure
        raise AssertionError(f"no error, but {result}")


def _literal(value: Any) -> str:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        kind = next(name for name, dtype in _DTYPES.items() if dtype == value.dtype)
        return f"new {kind}(Uint8Array.from(atob('{data}'), one => one.charCodeAt(0)).buffer)"
    return json.dumps(value)


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"kind", "data"}:
            array: NDArray[Any] = np.frombuffer(base64.b64decode(value["data"]), _DTYPES[value["kind"]])
            return array
        return {name: _arrays(one) for name, one in value.items()}
    return [_arrays(one) for one in value] if isinstance(value, list) else value
