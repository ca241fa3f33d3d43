"""llama.cpp's library in a loop of its own, as its batched benchmark runs it: no server, no sampling.

    python llama_library_worker.py FOLDER MODEL.gguf SEQUENCES CONTEXT

FOLDER has ``libllama.so``. It answers lines of JSON: ``{"prompt": [ids]}`` gives tokens a second of a prompt in one
call, ``{"decode": N, "prompts": [[ids], …]}`` those of N steps with a token of each sequence behind its prompt. Each
step waits for its logits, which come to the host; the ids that follow do not depend on them.

Structures of options are opaque here, but for the four numbers that they begin with, which are checked: so any build of
the last years fits. Every layer is on the GPU, and attention is the flash kind, by the library's defaults.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

DEFAULTS = (512, 2048, 512, 1)
"""Context, batch, physical batch and sequences in the library's default options."""


class Options(ctypes.Structure):
    """Larger than any of the library's structures, which it fills and reads from the start."""

    _fields_ = [("numbers", ctypes.c_uint32 * 4), ("rest", ctypes.c_byte * 1008)]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
ERROR = 4
"""Level of what the library says of errors."""
said = ["nothing"]
"""The last error that the library has logged."""


@LOG
def log(level: int, text: bytes, _: object) -> None:
    """Keep errors, drop the rest."""
    if level == ERROR:
        said[0] = text.decode(errors="replace").strip()


class Batch(ctypes.Structure):
    """Tokens of a call."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def bound(folder: str) -> Any:
    """Load the library and declare what is called."""
    name = next(iter(sorted(Path(folder).glob("libllama.so*"))), None)
    if name is None:
        raise RuntimeError(f"{folder} has no libllama.so")
    library, pointer = ctypes.CDLL(str(name)), ctypes.c_void_p
    for function, result, arguments in (
        ("llama_model_default_params", Options, []),
        ("llama_context_default_params", Options, []),
        ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Options]),
        ("llama_init_from_model", pointer, [pointer, Options]),
        ("llama_get_memory", pointer, [pointer]),
        ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
        ("llama_batch_init", Batch, [ctypes.c_int32] * 3),
        ("llama_decode", ctypes.c_int32, [pointer, Batch]),
        ("llama_synchronize", None, [pointer]),
    ):
        declared = getattr(library, function)
        declared.restype, declared.argtypes = result, arguments
    library.llama_log_set(log, None)
    library.llama_backend_init()
    return library


class Loop:
    """An open model and its sequences."""

    def __init__(self, folder: str, model: str, sequences: int, context: int) -> None:
        self._library = bound(folder)
        loaded = self._library.llama_model_load_from_file(model.encode(), self._library.llama_model_default_params())
        if not loaded:
            raise RuntimeError(f"it cannot load {model}: {said[0]}")
        options = self._library.llama_context_default_params()
        if tuple(options.numbers) != DEFAULTS:
            raise RuntimeError(f"its options begin with {list(options.numbers)}, not with {list(DEFAULTS)}")
        options.numbers[:] = [sequences * context, 2048, 512, sequences]
        self._context = self._library.llama_init_from_model(loaded, options)
        if not self._context:
            raise RuntimeError(f"it cannot open a context: {said[0]}")
        self._batch = self._library.llama_batch_init(2048, 0, 1)

    def clear(self) -> None:
        """Drop all tokens."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def call(self, rows: list[tuple[int, int, int]], last: set[int]) -> None:
        """Run token, position and sequence of some rows, and wait for the logits of the rows numbered in `last`."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, i in last
            batch.seq_id[i][0] = sequence
        if self._library.llama_decode(self._context, batch) != 0:
            raise RuntimeError(f"llama_decode failed: {said[0]}")
        self._library.llama_synchronize(self._context)

    def prompt(self, ids: list[int]) -> float:
        """Tokens per second of a prompt."""
        self.clear()
        rows = [(token, i, 0) for i, token in enumerate(ids)]
        start = time.perf_counter()
        self.call(rows, {len(rows) - 1})
        return len(ids) / (time.perf_counter() - start)

    def decode(self, count: int, prompts: list[list[int]]) -> float:
        """Tokens per second of all sequences."""
        self.clear()
        for number, ids in enumerate(prompts):
            self.call([(token, i, number) for i, token in enumerate(ids)], {len(ids) - 1})
        every, length = set(range(len(prompts))), len(prompts[0])
        start = time.perf_counter()
        for step in range(count):
            self.call([(ids[step % length], length + step, number) for number, ids in enumerate(prompts)], every)
        return count * len(prompts) / (time.perf_counter() - start)


def main() -> None:
    """Answer until the input ends; an error is the last answer."""
    try:
        folder, model, sequences, context = sys.argv[1:]
        loop = Loop(folder, model, int(sequences), int(context))
        print(json.dumps({"opened": model}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            decode = "decode" in request
            rate = loop.decode(request["decode"], request["prompts"]) if decode else loop.prompt(request["prompt"])
            print(json.dumps({"rate": rate}), flush=True)
    except Exception as error:  # whatever the library raises: the caller says it
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
