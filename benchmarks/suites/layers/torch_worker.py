"""Times layers in PyTorch. Run as a script by an interpreter that has it; it needs nothing of this package.

``python torch_worker.py cpu|cuda THREADS``, then requests as JSON lines on stdin, an answer for each on stdout.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

BURST_SECONDS = 0.05
PACKAGES = {"cortical": "torch_cortical", "program": "torch_program"}
"""Kinds that are no layers of PyTorch, and the file beside this one that builds them of another package."""


def main() -> None:
    """Answer requests until there are no more."""
    device, threads = sys.argv[1], int(sys.argv[2])
    try:
        torch = importlib.import_module("torch")  # by name: the package itself must not depend on it
        if device == "cuda" and not torch.cuda.is_available():
            raise ImportError("it has no CUDA device")
    except ImportError as error:
        answer({"error": str(error)})
        return
    if threads:
        torch.set_num_threads(threads)
    worker = Worker(torch, device)
    answer({"about": f"PyTorch {torch.__version__}, {device}, {torch.get_num_threads()} threads"})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                worker.load(request["arrays"], request["layer"])
                answer({})
            elif request["do"] == "repeat":
                worker.repeat(request["count"], request["to"])
                answer({})
            else:
                seconds, busy = worker.time(request["role"])
                answer({"seconds": seconds, "busy": busy})
        except (RuntimeError, KeyError, ValueError) as error:
            answer({"error": f"{type(error).__name__}: {error}"})


def answer(what: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Worker:
    """One layer at a time."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.device = torch, device
        self.counts: dict[str, int] = {}
        self.runs: dict[str, Callable[[], Any]] = {}
        self.layer: Callable[[Any], Any] | None = None
        self.x: Any = None

    def load(self, path: str, spec: Mapping[str, Any]) -> None:
        """Put the arrays on the device, and check what the layer is."""
        np = importlib.import_module("numpy")
        with np.load(path) as file:
            arrays = {name: self.torch.from_numpy(file[name]).to(self.device) for name in file.files}
        x, gy = arrays.pop("x"), arrays.pop("gy")
        params = {name.removeprefix("p/"): value.requires_grad_(True) for name, value in arrays.items()}
        x = x if x.dtype == self.torch.int32 else x.requires_grad_(True)
        layers = importlib.import_module("torch_layers").Layers(
            self.torch, self.device
        )  # from the folder of this script
        package = PACKAGES.get(spec["kind"])
        if package is None:
            layer = layers.build(spec, params)
        else:
            layer = importlib.import_module(package).build(layers, spec, x.shape[-1], params)
        params.update(layers.replaced)
        wanted = [*params.values(), *([x] if x.requires_grad else [])]

        def forward(of: Callable[[Any], Any] = layer) -> Any:
            with self.torch.no_grad():
                return of(x)

        def train(of: Callable[[Any], Any] = layers.learned or layer) -> Any:
            return self.torch.autograd.grad(of(x), wanted, gy, allow_unused=True)

        self.runs, self.counts = {"forward": forward, "train": train}, {}
        if layers.with_resets is not None:
            for name, run in (("forward", forward), ("train", train)):
                self.runs[f"{name} with resets"] = functools.partial(run, layers.with_resets)
        if layers.decode is not None:
            self.runs["decode"] = layers.decode
        self.layer, self.x = layer, x
        shape = tuple(forward().shape)
        if shape != tuple(gy.shape):
            raise ValueError(f"{spec['kind']} made {shape}, expected {tuple(gy.shape)}")

    def repeat(self, count: int, path: str) -> None:
        """Let the layer read what it has made, so often, and save the end as a file of NumPy."""
        y = self.x
        assert self.layer is not None  # it has been loaded
        with self.torch.no_grad():
            for _ in range(count):
                y = self.layer(y)
        importlib.import_module("numpy").save(path, y.cpu().numpy(), allow_pickle=False)

    def time(self, role: str) -> tuple[float, float]:
        """Return the seconds of a run and its processor time, from a burst."""
        if role not in self.counts:
            self.burst(role, 2)
            self.counts[role] = max(1, min(1000, int(BURST_SECONDS / max(self.burst(role, 2)[0], 1e-6))))
        return self.burst(role, self.counts[role])

    def burst(self, role: str, count: int) -> tuple[float, float]:
        run = self.runs[role]
        self.wait()
        start, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            run()
        self.wait()
        return (time.perf_counter() - start) / count, (time.process_time() - used) / count

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()


if __name__ == "__main__":
    main()
