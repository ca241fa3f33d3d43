"""PyTorch beside our layers, in a process of its own: another interpreter may have it, and nothing of it loads here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.bench.layers.cases import LayerCase
from volumetric.errors import DeviceError
from volumetric.layers import LayerSpec, Parallel

WORKER = Path(__file__).with_name("torch_worker.py")


class TorchPeer:
    """A PyTorch process that times layers.

    Parameters
    ----------
    python : interpreter that has PyTorch; None: this one
    device : ``"cpu"`` or ``"cuda"``
    threads : CPU threads

    Raises
    ------
    DeviceError : PyTorch or its device is not there
    """

    def __init__(self, python: str | Path | None = None, *, device: str = "cpu", threads: int | None = None) -> None:
        command = [str(python or sys.executable), str(WORKER), device, str(threads or 0)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise DeviceError(
                f"cannot start {command[0]}: {error.strerror}", hint="name a Python interpreter"
            ) from None
        self._folder = tempfile.TemporaryDirectory()
        try:
            self.about: str = self._answer()["about"]
        except DeviceError:
            self.close()
            raise

    def load(self, case: LayerCase, arrays: dict[str, Array]) -> None:
        """Prepare a layer with the same numbers as ours."""
        self.give(described(case.spec), arrays)

    def give(self, layer: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Prepare what `described` returns of a layer, or what the worker knows beside layers."""
        path = Path(self._folder.name) / "layer.npz"
        np.savez(path, allow_pickle=False, **arrays)
        self._ask({"do": "load", "arrays": str(path), "layer": layer})

    def time(self, role: str) -> float:
        """Return the seconds of one run, from a burst of them."""
        return self.times(role)[0]

    def times(self, role: str) -> tuple[float, float]:
        """Return these, and the processor time of the peer's process."""
        found = self._ask({"do": "time", "role": role})
        return float(found["seconds"]), float(found["busy"])

    def repeat(self, count: int) -> Array:
        """Return what is there after the layer has read what it made, so often, begun with ``x``."""
        path = Path(self._folder.name) / "made.npy"
        self._ask({"do": "repeat", "count": count, "to": str(path)})
        return np.load(path, allow_pickle=False)

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=30)
        self._folder.cleanup()

    def __enter__(self) -> TorchPeer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None  # it was asked for
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise DeviceError("the PyTorch process ended") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # it was asked for
        line = self._process.stdout.readline()
        if not line:
            raise DeviceError("the PyTorch process ended", hint="its own message is above")
        answer = json.loads(line)
        if "error" in answer:
            raise DeviceError(f"PyTorch: {answer['error']}", hint="pip install torch, or leave --torch-python out")
        return answer


@contextmanager
def open_peer(
    python: Path | None, *, gpu: bool, threads: int | None, package: str = "torch"
) -> Iterator[TorchPeer | None]:
    """Open PyTorch beside a device: None where nobody asked for it and this interpreter does not have it.

    `package` is one that stands on PyTorch and is the peer.
    """
    if python is None and not all(map(importlib.util.find_spec, ("torch", package))):
        yield None
        return
    with TorchPeer(python, device="cuda" if gpu else "cpu", threads=threads) as peer:
        yield peer


def described(spec: LayerSpec) -> dict[str, Any]:
    """Return a layer as JSON data: its kind, fields and children."""
    found: dict[str, Any] = {"kind": spec.kind}
    for field in fields(spec):  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)
        value = getattr(spec, field.name)
        found[field.name] = _plain(value)
    if isinstance(spec, Parallel):
        found["branches"] = [described(branch) for branch in spec.branches]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, LayerSpec):
        return described(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
