"""Trains a network in PyTorch with a plain loop. Run as a script by an interpreter that has it; needs nothing of ours.

``python torch_worker.py REQUEST``, a JSON object; prints the seconds of each run and the loss of its last epoch, and on
CUDA the same of whole epochs in one CUDA graph, whose losses are read once an epoch.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main() -> None:
    """Train once for a warm-up, then for the clock, each time from the same weights."""
    request = json.loads(sys.argv[1])
    torch = importlib.import_module("torch")  # by name: the package itself must not depend on it
    if request["device"] == "cuda" and not torch.cuda.is_available():
        raise SystemExit("it has no CUDA device")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    train(torch, request, 1)
    runs = [train(torch, request, request["epochs"]) for _ in range(request["repetitions"])]
    answer = {"seconds": [seconds for seconds, _ in runs], "loss": runs[-1][1]}
    if request["device"] == "cuda":
        runs = [train_recorded(torch, request, request["epochs"]) for _ in range(request["repetitions"])]
        answer |= {"recorded_seconds": [seconds for seconds, _ in runs], "recorded_loss": runs[-1][1]}
    sys.stdout.write(json.dumps(answer) + "\n")


def open_case(torch: Any, request: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """Return the weights on the device, and the batches of inputs and targets."""
    np, device = importlib.import_module("numpy"), request["device"]
    with np.load(request["arrays"]) as file:
        arrays = {name: torch.from_numpy(file[name]).to(device) for name in file.files}
    x, y = (arrays.pop(name).chunk(request["batches"]) for name in "xy")
    return {name: w.requires_grad_(True) for name, w in arrays.items()}, list(zip(x, y, strict=True))


def train_recorded(torch: Any, request: dict[str, Any], epochs: int) -> tuple[float, float]:
    """Return the same of epochs that are replayed: recording one, which the warm-up of allocators precedes, is free."""
    arrays, batches = open_case(torch, request)
    weights, losses = list(arrays.values()), torch.zeros(len(batches), device=request["device"])
    start = [w.detach().clone() for w in weights]

    def epoch() -> None:
        for i, (inputs, targets) in enumerate(batches):
            loss = torch.nn.functional.mse_loss(forward(torch, request["layers"], arrays, inputs), targets)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-request["rate"])
                losses[i].copy_(loss)

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            epoch()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        epoch()
    graph.replay()
    with torch.no_grad():
        torch._foreach_copy_(weights, start)
    torch.cuda.synchronize()
    began, mean = time.perf_counter(), 0.0
    for _ in range(epochs):
        graph.replay()
        mean = losses.mean().item()
    return time.perf_counter() - began, mean


def train(torch: Any, request: dict[str, Any], epochs: int) -> tuple[float, float]:
    """Return the seconds, and the mean loss of the last epoch."""
    device = request["device"]
    arrays, batches = open_case(torch, request)
    weights = list(arrays.values())
    optimiser = torch.optim.SGD(weights, lr=request["rate"])
    wait(torch, device)
    began, losses = time.perf_counter(), []
    for _ in range(epochs):
        losses = []
        for inputs, targets in batches:
            loss = torch.nn.functional.mse_loss(forward(torch, request["layers"], arrays, inputs), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    wait(torch, device)
    return time.perf_counter() - began, sum(losses) / len(losses)


def wait(torch: Any, device: str) -> None:
    """Let the device finish."""
    if device == "cuda":
        torch.cuda.synchronize()


def forward(torch: Any, layers: list[dict[str, Any]], arrays: dict[str, Any], x: Any) -> Any:
    """Compute the network."""
    f = torch.nn.functional
    for layer in layers:
        weight = arrays[layer["weight"]] if "weight" in layer else None
        match layer["do"]:
            case "flatten":
                x = x.flatten(1)
            case "rms_norm":
                x = f.rms_norm(x, (x.shape[-1],), weight, layer["eps"])
            case "dense":
                x = f.linear(x, weight)
            case kind:
                x = getattr(f, kind)(x, weight, padding=1)
        if layer.get("relu"):
            x = f.relu(x)
    return x


if __name__ == "__main__":
    main()
