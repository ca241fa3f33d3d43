"""Runs under a Python with torch and transformers: the fine-tuning of `finetune.py`, as one would write it there."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  (installed in that other Python alone)
import transformers  # pyright: ignore[reportMissingImports]

NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}


class Overlay(torch.nn.Module):
    """A linear layer with a low-rank overlay."""

    def __init__(self, inner: torch.nn.Linear, down: np.ndarray, up: np.ndarray, scale: float) -> None:
        super().__init__()
        self.inner, self.scale = inner, scale
        self.down, self.up = torch.nn.Parameter(torch.tensor(down)), torch.nn.Parameter(torch.tensor(up))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.scale * (x @ self.down.T) @ self.up.T


def add_overlays(model: torch.nn.Module, path: Path) -> None:
    """Freeze the model and put the overlays of a file on its attention layers."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with np.load(path) as file:
        about = json.loads(bytes(file["about"]))
        for key in file.files:
            if not key.endswith(":a"):
                continue
            coord, role = key.removesuffix(".weight:a").split("/")
            block = model.model.layers[int(coord.split(".")[0]) - 1]
            parent = block.get_submodule(NAMES[role].split(".")[0])
            name = NAMES[role].split(".")[1]
            wrapped = Overlay(getattr(parent, name), file[key], file[key[:-1] + "b"], about["alpha"] / about["rank"])
            setattr(parent, name, wrapped)


def main() -> None:
    given = json.loads(sys.argv[1])
    home = Path(given["home"])
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float32)
    model.train()
    if (home / "overlays.npz").exists():
        add_overlays(model, home / "overlays.npz")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=given["rate"], weight_decay=0.0)
    with np.load(home / "windows.npz") as file:
        inputs, targets = torch.tensor(file["inputs"]).long(), torch.tensor(file["targets"]).long()
    losses, seconds, size = [], [], given["batch"]
    for i in range(given["updates"]):
        began = time.perf_counter()
        at = slice(i * size % len(inputs), i * size % len(inputs) + size)
        logits = model(input_ids=inputs[at], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[at].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the process that started this one
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**20
    print(json.dumps({"losses": losses, "seconds": seconds, "peak": peak}))


main()
