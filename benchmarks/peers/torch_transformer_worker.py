"""The PyTorch side of `gpu_peers.py training`: a plain loop in float32, with autocast, and compiled.

    python torch_transformer_worker.py cuda|cpu

The first line of its input names the arrays and sizes; then each ``{"train": "float32"|"autocast"|"compiled"}`` makes
the next updates of that form and is answered by their seconds and the last loss. Autocast is to float16, on the CPU to
bfloat16; what is compiled has it, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from typing import Any

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class Transformer:
    """The network of `known_shapes.network` with weights of its own, and an optimiser."""

    def __init__(self, device: str, request: dict[str, Any], arrays: dict[str, Any], form: str) -> None:
        self._device, self._sizes = device, request
        self._weights = {key: torch.tensor(array, device=device, requires_grad=True) for key, array in arrays.items()}
        fused = {"fused": True} if device == "cuda" else {}
        self._optimiser = torch.optim.AdamW(self._weights.values(), lr=request["rate"], weight_decay=0.0, **fused)
        self._half = form != "float32"
        self._forward = torch.compile(self.logits) if form == "compiled" else self.logits
        self._scaler = torch.amp.GradScaler(device, enabled=self._half and device == "cuda")

    def logits(self, ids: Any) -> Any:
        """Return the logits of token ids ``[sequences, rows]``."""
        f, weights, blocks = torch.nn.functional, self._weights, self._sizes["blocks"]
        heads, kv_heads = self._sizes["heads"], self._sizes["kv_heads"]
        x = f.embedding(ids, weights["0.0.0.0/weight"])
        count, rows, width = x.shape
        size = width // heads
        angles = (
            torch.arange(rows, device=ids.device)
            .float()
            .outer(10000.0 ** -(torch.arange(0, size, 2, device=ids.device) / size))
        )
        cos, sin = angles.cos(), angles.sin()

        def split(t: Any, number: int) -> Any:
            return t.view(count, rows, number, size).transpose(1, 2)

        def turned(t: Any) -> Any:
            low, high = t.split(size // 2, -1)
            return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(t.dtype)

        for z in range(1, blocks + 1):
            normal = f.rms_norm(x, (width,), weights[f"{z}.0.0.0/weight"], 1e-6)
            q, k, v = (f.linear(normal, weights[f"{z}.0.0.1/{part}.weight"]) for part in "qkv")
            q, k, v = turned(split(q, heads)), turned(split(k, kv_heads)), split(v, kv_heads)
            mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            x = x + f.linear(mixed.transpose(1, 2).reshape(count, rows, width), weights[f"{z}.0.0.1/o.weight"])
            normal = f.rms_norm(x, (width,), weights[f"{z}.0.0.3/weight"], 1e-6)
            gate, up = (f.linear(normal, weights[f"{z}.0.0.4/{part}.weight"]) for part in ("gate", "up"))
            x = x + f.linear(f.silu(gate) * up, weights[f"{z}.0.0.4/down.weight"])
        normal = f.rms_norm(x, (width,), weights[f"{blocks + 1}.0.0.0/weight"], 1e-6)
        return f.linear(normal, weights[f"{blocks + 1}.0.0.1/weight"])

    def train(self, batches: Any) -> tuple[float, float]:
        """Make an update for each batch; return the seconds and the last loss."""
        half = torch.float16 if self._device == "cuda" else torch.bfloat16
        start, value = time.perf_counter(), 0.0
        for ids in batches:
            with torch.autocast(self._device, dtype=half, enabled=self._half):
                logits = self._forward(ids[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            self._optimiser.zero_grad()
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimiser)
            self._scaler.update()
            value = loss.item()
        return time.perf_counter() - start, value


def main() -> None:
    """Answer until the input ends; an error is the last answer."""
    device, opened = sys.argv[1], {}
    try:
        if torch is None:
            raise RuntimeError("torch is not installed")
        np = importlib.import_module("numpy")
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("it has no CUDA device")
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        print(json.dumps({"about": f"PyTorch {torch.__version__}, {name}"}), flush=True)
        request = json.loads(sys.stdin.readline())
        with np.load(request["arrays"]) as file:
            arrays = {key: file[key] for key in file.files}
        batches = torch.tensor(arrays.pop("tokens"), device=device).long().chunk(request["updates"])
        print(json.dumps({"opened": True}), flush=True)
        for line in sys.stdin:
            form = json.loads(line)["train"]
            if form not in opened:
                opened[form] = Transformer(device, request, arrays, form)
            seconds, loss = opened[form].train(batches)
            print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)
    except Exception as error:  # whatever the library raises: the caller says it
        print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:500]}"}), flush=True)


if __name__ == "__main__":
    main()
