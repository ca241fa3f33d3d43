"""PyTorch beside our layers, in a process of its own: another interpreter may have it, and nothing of it loads here."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.workers import Worker
from volumetric.base._typing import Array
from volumetric.base.errors import DeviceError
from volumetric.layers import LayerSpec, Parallel

if TYPE_CHECKING:
    from benchmarks.suites.layers.cases import LayerCase

WORKER = "suites/layers/torch_worker.py"


class TorchPeer(Worker):
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
        missing = "pip install torch, or leave --torch-python out"
        super().__init__(python or sys.executable, WORKER, device, str(threads or 0), name="PyTorch", missing=missing)
        self._folder = tempfile.TemporaryDirectory()
        try:
            self.about: str = self.answer()["about"]
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
        self.ask({"do": "load", "arrays": str(path), "layer": layer})

    def time(self, role: str) -> float:
        """Return the seconds of one run, from a burst of them."""
        return self.times(role)[0]

    def times(self, role: str) -> tuple[float, float]:
        """Return these, and the processor time of the peer's process."""
        found = self.ask({"do": "time", "role": role})
        return float(found["seconds"]), float(found["busy"])

    def repeat(self, count: int) -> Array:
        """Return what is there after the layer has read what it made, so often, begun with ``x``."""
        path = Path(self._folder.name) / "made.npy"
        self.ask({"do": "repeat", "count": count, "to": str(path)})
        return np.load(path, allow_pickle=False)

    def close(self) -> None:
        """End the process."""
        super().close()
        self._folder.cleanup()


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
