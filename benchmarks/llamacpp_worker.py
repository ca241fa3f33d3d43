"""The llama.cpp side of `compare_llamacpp.py`. Runs under a Python that has llama-cpp-python, not under ours.

It calls the C interface directly, as `llama-bench` does, so that no wrapper's time counts against llama.cpp.

    python llamacpp_worker.py variants SOURCE.gguf DIRECTORY FORMAT …   write requantised copies
    python llamacpp_worker.py tokens MODEL.gguf TEXT                    print token ids as JSON
    python llamacpp_worker.py bench MODEL.gguf JOB.json                 print measurements as JSON
    python llamacpp_worker.py logits MODEL.gguf IDS.json OUT.npy        write the logits after each id, [T, vocab]
    python llamacpp_worker.py greedy MODEL.gguf IDS.json COUNT [exact]  print COUNT greedy ids after a prompt as JSON
    python llamacpp_worker.py paced MODEL.gguf IDS COUNT                print tokens per processor second of one thread
    python llamacpp_worker.py encode MODEL.gguf TEXTS.json              print the ids of each text as JSON
    python llamacpp_worker.py embed MODEL.gguf IDS.json OUT.npy         write the embedding of each list of ids
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

import llama_cpp as lc  # pyright: ignore[reportMissingImports]  (it is in the environment that runs this file)
import numpy as np

# fmt: off
FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15,
    "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32,
}
# fmt: on


@lc.llama_log_callback
def discard_log(level: int, text: bytes, data: object) -> None:
    """Keep the library's log off stderr."""


class Session:
    """One model in one context of llama.cpp."""

    def __init__(self, path: str, *, threads: int, context: int, exact: bool = False) -> None:
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = lc.llama_model_get_vocab(self.model)
        params = lc.llama_context_default_params()
        params.n_ctx = params.n_batch = context
        params.n_threads = params.n_threads_batch = threads
        if exact:  # keys and values in float32 and not in float16
            params.type_k = params.type_v = lc.GGML_TYPE_F32
            params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = lc.llama_init_from_model(self.model, params)
        self.vocab_size = lc.llama_vocab_n_tokens(self.vocab)

    def reset(self) -> None:
        """Empty the KV cache."""
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def feed(self, ids: list[int]) -> int:
        """Append tokens and return the most likely next one."""
        tokens = (lc.llama_token * len(ids))(*ids)
        if lc.llama_decode(self.context, lc.llama_batch_get_one(tokens, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        logits = lc.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax())

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, with special tokens recognised and none added."""
        raw = text.encode()
        tokens = (lc.llama_token * (len(raw) + 8))()
        count = lc.llama_tokenize(self.vocab, raw, len(raw), tokens, len(tokens), False, True)
        return list(tokens[:count])

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits after each of `ids`, float32 ``[T, vocab]``."""
        self.reset()
        rows = []
        for id in ids:
            self.feed([id])
            rows.append(np.ctypeslib.as_array(lc.llama_get_logits_ith(self.context, -1), (self.vocab_size,)).copy())
        return np.stack(rows)

    def prefill(self, ids: list[int]) -> float:
        """Tokens/s of one call that takes the whole prompt."""
        self.reset()
        start = time.perf_counter()
        self.feed(ids)
        return len(ids) / (time.perf_counter() - start)

    def decode(self, prompt: list[int], count: int) -> tuple[float, list[int]]:
        """Tokens/s of `count` greedy steps after `prompt`, and the ids."""
        self.reset()
        ids = [self.feed(prompt)]
        start = time.perf_counter()
        for _ in range(count):
            ids.append(self.feed(ids[-1:]))
        return count / (time.perf_counter() - start), ids


def write_variants(source: str, directory: str, formats: list[str]) -> None:
    for name in formats:
        params = lc.llama_model_quantize_default_params()
        params.ftype, params.allow_requantize = FILE_TYPES[name], True
        target = Path(directory) / f"{name}.gguf"
        if lc.llama_model_quantize(source.encode(), str(target).encode(), ctypes.byref(params)) != 0:
            raise SystemExit(f"llama.cpp cannot write {target}")


def bench(path: str, job: dict) -> dict:
    session = Session(path, threads=job["threads"], context=job["context"])
    session.prefill(job["long_prompt"])
    session.decode(job["prompt"], 8)
    prefill = [session.prefill(job["long_prompt"]) for _ in range(job["repeats"])]
    decode = [session.decode(job["prompt"], job["new_tokens"]) for _ in range(job["repeats"])]
    return {"prefill": prefill, "decode": [speed for speed, _ in decode], "ids": decode[0][1]}


def paced(path: str, prompt: list[int], count: int) -> float:
    """Tokens per second of processor time of one thread, the prompt fed token by token."""
    session, last = Session(path, threads=1, context=512), 0
    for token in prompt:
        last = session.feed([token])
    start = time.process_time()
    for _ in range(count):
        last = session.feed([last])
    return count / (time.process_time() - start)


def encode(path: str, texts: list[str]) -> list[dict]:
    """Ids of each text: alone, with special tokens read as such, and with what the model wants around it."""
    params = lc.llama_model_default_params()
    params.vocab_only = True
    model = lc.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    vocab = lc.llama_model_get_vocab(model)

    def ids(text: str, add: bool, special: bool) -> list[int]:
        raw = text.encode()
        tokens = (lc.llama_token * (len(raw) + 16))()
        return list(tokens[: lc.llama_tokenize(vocab, raw, len(raw), tokens, len(tokens), add, special)])

    return [{"text": t, "ids": ids(t, False, True), "around": ids(t, True, True)} for t in texts]


def embed(path: str, texts: list[list[int]]) -> np.ndarray:
    """Embeddings of texts of token ids, pooled as the file says and not normalised, float32 ``[n, d]``."""
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = max(64, *map(len, texts))
    params.embeddings = True
    context, rows = lc.llama_init_from_model(model, params), []
    for ids in texts:
        batch = lc.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, id in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = id, i, 1, True
            batch.seq_id[i][0] = 0
        if lc.llama_encode(context, batch) != 0:
            raise SystemExit("llama_encode failed")
        lc.llama_batch_free(batch)
        found = lc.llama_get_embeddings_seq(context, 0)
        rows.append(np.ctypeslib.as_array(found, (lc.llama_model_n_embd(model),)).copy())
    return np.stack(rows)


def main() -> None:
    lc.llama_log_set(discard_log, ctypes.c_void_p(0))
    lc.llama_backend_init()
    verb, model, *rest = sys.argv[1:]
    if verb == "variants":
        write_variants(model, rest[0], rest[1:])
    elif verb == "tokens":
        print(json.dumps(Session(model, threads=1, context=64).tokenize(rest[0])))
    elif verb == "bench":
        print(json.dumps({"version": lc.__version__} | bench(model, json.loads(Path(rest[0]).read_text()))))
    elif verb == "paced":
        print(json.dumps(paced(model, json.loads(rest[0]), int(rest[1]))))
    elif verb == "logits":
        ids = json.loads(Path(rest[0]).read_text())
        np.save(rest[1], Session(model, threads=1, context=max(64, len(ids)), exact=True).logits(ids))
    elif verb == "greedy":
        ids, count, exact = json.loads(Path(rest[0]).read_text()), int(rest[1]), rest[2:] == ["exact"]
        session = Session(model, threads=1, context=len(ids) + count + 8, exact=exact)
        print(json.dumps(session.decode(ids, count)[1]))
    elif verb == "embed":
        np.save(rest[1], embed(model, json.loads(Path(rest[0]).read_text())))
    elif verb == "encode":
        print(json.dumps(encode(model, json.loads(Path(rest[0]).read_text()))))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
