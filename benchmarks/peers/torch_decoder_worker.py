"""The PyTorch side of `gpu_peers.py torch`: decoders of Llama's kind in float16, a step in one CUDA graph.

    python torch_decoder_worker.py cuda|cpu

It answers lines of JSON. ``{"do": "open", …sizes}`` draws the weights of a model, ``{"do": "prepare", …}`` compiles a
step of so many rows and records it, ``{"do": "rate"}`` gives tokens a second of it. On the CPU, for tests, steps are
neither compiled nor recorded.

A layer is compiled by inductor with its search of tilings, and a graph replays all layers with the arg max, so the host
does nothing between two tokens. The id of each step is read back at once, as a program that streams text does.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from typing import Any

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Matrices = dict[str, Any]


class Decoder:
    """Weights of a model, and one step of it at a time."""

    def __init__(self, device: str, sizes: dict[str, int]) -> None:
        self.device, self.sizes = device, sizes
        self.dtype = torch.float16 if device == "cuda" else torch.float32
        width, hidden = sizes["width"], sizes["hidden"]
        self.head_dim = width // sizes["heads"]
        key_width = sizes["kv_heads"] * self.head_dim
        self.layers = [
            {
                "qkv": self._matrix(width + 2 * key_width, width),
                "out": self._matrix(width, width),
                "gate_up": self._matrix(2 * hidden, width),
                "down": self._matrix(width, hidden),
                "norms": torch.ones(2, width, device=device, dtype=self.dtype),
            }
            for _ in range(sizes["blocks"])
        ]
        self.table = self._matrix(sizes["vocabulary"], width)
        self.head = self.table if sizes["tied"] else self._matrix(sizes["vocabulary"], width)
        self.last_norm = torch.ones(width, device=device, dtype=self.dtype)
        self.replay: Any = None
        self.rewind: Any = None
        self.chosen: Any = None

    def _matrix(self, rows: int, columns: int) -> Any:
        return torch.empty(rows, columns, device=self.device, dtype=self.dtype).normal_(0.0, 0.02)

    def layer(self, attention: str) -> Any:
        """Return the function of a layer: residual stream, weights, caches, positions, angles and mask → stream."""
        heads, kv_heads, size = self.sizes["heads"], self.sizes["kv_heads"], self.head_dim
        group, f = heads // kv_heads, torch.nn.functional

        def turned(x: Any, cos: Any, sin: Any) -> Any:
            low, high = x.split(size // 2, -1)
            return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

        def run(x: Any, weights: Matrices, keys: Any, values: Any, at: Any, cos: Any, sin: Any, mask: Any) -> Any:
            count, rows, width = x.shape
            normal = f.rms_norm(x, (width,), weights["norms"][0], 1e-5)
            every = f.linear(normal, weights["qkv"]).view(count, rows, heads + 2 * kv_heads, size).transpose(1, 2)
            q, k, v = every.split((heads, kv_heads, kv_heads), 1)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            if rows > 1:  # a prompt: it reads only itself
                wide = [t.repeat_interleave(group, 1) if group > 1 else t for t in (k, v)]
                mixed = f.scaled_dot_product_attention(q, *wide, is_causal=True)
            elif attention == "sdpa":  # the heads of a group as rows of one query, so that keys are read once
                grouped = q.reshape(count, kv_heads, group, size)
                mixed = f.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(q.shape)
            else:  # sums that inductor fuses into one or two kernels
                grouped = q.reshape(count, kv_heads, group, 1, size).float()
                scores = (grouped * keys.unsqueeze(2)).sum(-1) * size**-0.5
                shares = scores.masked_fill(~mask.view(1, 1, 1, -1), float("-inf")).softmax(-1)
                mixed = (shares.unsqueeze(-1) * values.unsqueeze(2)).sum(3).to(x.dtype).reshape(q.shape)
            x = x + f.linear(mixed.transpose(1, 2).reshape(count, rows, width), weights["out"])
            normal = f.rms_norm(x, (width,), weights["norms"][1], 1e-5)
            gate, up = f.linear(normal, weights["gate_up"]).chunk(2, -1)
            return x + f.linear(f.silu(gate) * up, weights["down"])

        return run

    def prepare(self, sequences: int, rows: int, position: int, tokens: int, attention: str) -> float:
        """Make `replay` a step of `sequences` × `rows` tokens; return the seconds that this takes."""
        start = time.perf_counter()
        self.drop()
        size, device, context = self.head_dim, self.device, position + (tokens + 8 if rows == 1 else rows)
        shape = (sequences, self.sizes["kv_heads"], context, size)
        caches = [[torch.zeros(shape, device=device, dtype=self.dtype) for _ in "kv"] for _ in self.layers]
        angles = (
            torch.arange(context, device=device).float().outer(10000.0 ** -(torch.arange(0, size, 2) / size).to(device))
        )
        cosines, sines = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        places = torch.arange(context, device=device)
        ids = torch.randint(0, self.sizes["vocabulary"], (sequences, rows), device=device)
        at = torch.arange(position, position + rows, device=device)
        begin, chosen = at.clone(), torch.zeros(sequences, dtype=torch.long, device=device)
        f, layer, end = torch.nn.functional, self.layer(attention), self._end
        if device == "cuda":
            torch._dynamo.reset()
            layer, end = (torch.compile(one, fullgraph=True, dynamic=False) for one in (layer, end))

        def step() -> None:
            x = f.embedding(ids, self.table)
            cos, sin, mask = cosines[at], sines[at], (places <= at[-1]).view(1, 1, 1, -1)
            for weights, (keys, values) in zip(self.layers, caches, strict=True):
                x = layer(x, weights, keys, values, at, cos, sin, mask)
            chosen.copy_(end(x))
            if rows == 1:
                ids.copy_(chosen.unsqueeze(1))
                at.add_(1)

        if device == "cuda":
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(aside)
            at.copy_(begin)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            step = graph.replay
        self.replay, self.per_step, self.steps = step, sequences * rows, tokens if rows == 1 else 8
        self.rewind, self.chosen = lambda: at.copy_(begin), chosen
        self.rate()
        return time.perf_counter() - start

    def _end(self, x: Any) -> Any:
        f = torch.nn.functional
        return f.linear(f.rms_norm(x[:, -1], (x.shape[-1],), self.last_norm, 1e-5), self.head).argmax(-1)

    def rate(self) -> float:
        """Tokens a second of some steps from the first position, the ids of each read back."""
        self.rewind()
        self.chosen.tolist()
        start = time.perf_counter()
        for _ in range(self.steps):
            self.replay()
            self.chosen.tolist()
        return self.steps * self.per_step / (time.perf_counter() - start)

    def drop(self) -> None:
        """Free what `prepare` allocated."""
        self.replay = self.rewind = self.chosen = None
        if self.device == "cuda":
            importlib.import_module("gc").collect()
            torch.cuda.empty_cache()


def answer(device: str, opened: list[Decoder], request: dict[str, Any]) -> Any:
    """Do what is asked."""
    do = request.pop("do")
    if do == "open":
        opened.clear()
        opened.append(Decoder(device, request))
        return {"opened": True}
    if do == "prepare":
        return {"seconds": opened[0].prepare(**request)}
    return {"rate": opened[0].rate()}


def main() -> None:
    """Answer until the input ends; an error is the last answer."""
    device, opened = sys.argv[1], []
    try:
        if torch is None:
            raise RuntimeError("torch is not installed")
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("it has no CUDA device")
        torch.set_grad_enabled(False)
        if device == "cuda":
            inductor: Any = importlib.import_module("torch._inductor.config")
            inductor.coordinate_descent_tuning = True
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        print(json.dumps({"about": f"PyTorch {torch.__version__}, {name}"}), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(device, opened, json.loads(line))), flush=True)
    except Exception as error:  # whatever the library raises: the caller says it
        print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:500]}"}), flush=True)


if __name__ == "__main__":
    main()
