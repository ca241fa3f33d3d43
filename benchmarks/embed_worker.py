"""One engine of `embed.py`: reads requests, JSON a line, and answers each with what it took.

    python embed_worker.py volumetric[:DTYPE]|sentence-transformers|onnxruntime[:int8] MODEL THREADS

A request is ``{"texts": […]}``, the answer ``{"seconds": …, "cpu": …, "rows": embeddings}``. Tokenisation, pooling
and normalisation count for every engine. `DTYPE` is what weights are converted to; with ``bfloat16`` products are in
bfloat16, too. ``onnxruntime:int8`` is its dynamic quantisation: weights of int8, activations with one scale. ONNX
Runtime gets texts in batches of similar length, as sentence-transformers makes them, and a graph that torch exports
from the same weights.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Embed = Callable[[list[str]], Any]
BATCH = 32


def volumetric(model: str, threads: int, dtype: str) -> Embed:
    import volumetric as engine

    compute = "bfloat16" if dtype == "bfloat16" else "auto"
    return engine.load(model, device="cpu", threads=threads, dtype=dtype or None, compute=compute).embed


def sentence_transformers(model: str, threads: int, dtype: str) -> Embed:
    torch: Any = importlib.import_module("torch")
    opens: Any = importlib.import_module("sentence_transformers").SentenceTransformer

    torch.set_num_threads(threads)
    opened = opens(model, device="cpu")
    return lambda texts: opened.encode(texts, batch_size=BATCH, show_progress_bar=False)


def onnxruntime(model: str, threads: int, dtype: str) -> Embed:
    ort: Any = importlib.import_module("onnxruntime")
    from tokenizers import Tokenizer

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(_exported(model, dtype)), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    words = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    words.enable_truncation(json.loads((Path(model) / "sentence_bert_config.json").read_text())["max_seq_length"])
    words.enable_padding()

    def embed(texts: list[str]) -> Any:
        found: list[Any] = [None] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            encoded = words.encode_batch([texts[i] for i in some])
            ids = np.array([one.ids for one in encoded], np.int64)
            mask = np.array([one.attention_mask for one in encoded], np.int64)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            [hidden] = session.run(None, {name: given[name] for name in names})
            kept = mask[..., None].astype(np.float32)
            rows = (hidden * kept).sum(1) / kept.sum(1)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            for i, row in zip(some, rows, strict=True):
                found[i] = row
        return np.array(found)

    return embed


def _exported(model: str, dtype: str) -> Path:
    """Write the encoder as an ONNX file, once."""
    if dtype == "int8":
        quantization: Any = importlib.import_module("onnxruntime.quantization")
        source = _exported(model, "")
        path = source.with_suffix(".int8.onnx")
        if not path.exists():
            quantization.quantize_dynamic(str(source), str(path), weight_type=quantization.QuantType.QInt8)
        return path
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")

    path = Path(tempfile.gettempdir()) / f"volumetric-{Path(model).resolve().name}.onnx"
    if path.exists():
        return path

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = transformers.AutoModel.from_pretrained(model, attn_implementation="eager").eval().float()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.inner(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones(2, 8, dtype=torch.int64)
    axes = {name: {0: "texts", 1: "tokens"} for name in [*names, "hidden"]}
    torch.onnx.export(
        Hidden(), (ids, ids, ids * 0), str(path), input_names=names, output_names=["hidden"], dynamic_axes=axes,
        opset_version=17, dynamo=False,
    )  # fmt: skip
    return path


ENGINES: dict[str, Callable[[str, int, str], Embed]] = {
    "volumetric": volumetric,
    "sentence-transformers": sentence_transformers,
    "onnxruntime": onnxruntime,
}


def main() -> None:
    engine, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    name, _, dtype = engine.partition(":")
    embed = ENGINES[name](model, threads, dtype)
    print(json.dumps({"ready": engine}), flush=True)
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        start, worked = time.perf_counter(), time.process_time()
        rows = embed(texts)
        seconds, cpu = time.perf_counter() - start, time.process_time() - worked
        print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": np.asarray(rows, float).tolist()}), flush=True)


if __name__ == "__main__":
    main()
