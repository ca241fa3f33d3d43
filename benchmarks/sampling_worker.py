"""The peers' side of `sampling.py`: one line of settings in, the microseconds a row out. Runs under a peer's Python.

python sampling_worker.py llama.cpp|transformers ROWS.npy
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PROMPT = range(100, 200)
TEMPERATURE = 0.8
Draw = Callable[[np.ndarray], int]


def llama(settings: dict[str, Any], size: int) -> Draw:
    """A chain of llama.cpp's samplers; the row becomes its array of candidates first, as its own callers do it."""
    import llama_cpp as lc

    chain = lc.llama_sampler_chain_init(lc.llama_sampler_chain_default_params())
    if "repetition_penalty" in settings:
        penalties = (settings[name] for name in ("repetition_penalty", "frequency_penalty", "presence_penalty"))
        lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_penalties(size, 1024, *penalties))
        for token in PROMPT:
            lc.llama_sampler_accept(chain, token)
    if "top_k" in settings:
        lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_top_k(settings["top_k"]))
    if "top_p" in settings:
        lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_top_p(settings["top_p"], 1))
    if "min_p" in settings:
        lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_min_p(settings["min_p"], 1))
    lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_temp(TEMPERATURE))
    lc.llama_sampler_chain_add(chain, lc.llama_sampler_init_dist(1))
    candidates = np.zeros(size, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    numbers = np.arange(size, dtype=np.int32)
    array = lc.llama_token_data_array()

    def draw(row: np.ndarray) -> int:
        candidates["id"] = numbers
        candidates["logit"] = row
        array.data = ctypes.cast(candidates.ctypes.data, type(array.data))
        array.size, array.selected, array.sorted = size, -1, False
        lc.llama_sampler_apply(chain, ctypes.byref(array))
        token = array.data[array.selected].id
        lc.llama_sampler_accept(chain, token)
        return token

    return draw


def transformers(settings: dict[str, Any], size: int) -> Draw:
    """The logits processors that ``generate`` makes for these settings, softmax and a draw."""
    import torch
    import transformers as hf

    torch.set_num_threads(1)
    names = {
        "repetition_penalty": hf.RepetitionPenaltyLogitsProcessor,
        "top_k": hf.TopKLogitsWarper,
        "top_p": hf.TopPLogitsWarper,
        "min_p": hf.MinPLogitsWarper,
    }
    steps = hf.LogitsProcessorList([hf.TemperatureLogitsWarper(TEMPERATURE)])
    steps.extend(made(settings[name]) for name, made in names.items() if name in settings)
    ids = torch.tensor([list(PROMPT)])

    def draw(row: np.ndarray) -> int:
        with torch.inference_mode():
            scores = steps(ids, torch.from_numpy(row)[None])
            return int(torch.multinomial(torch.softmax(scores, -1), 1))

    return draw


def main() -> None:
    peer, file = sys.argv[1:]
    rows = np.load(file)
    for line in sys.stdin:
        draw = {"llama.cpp": llama, "transformers": transformers}[peer](json.loads(line), rows.shape[1])
        seconds, hot = [], rows[0].copy()
        for row in rows:
            hot[:] = row
            began = time.perf_counter()
            draw(hot)
            seconds.append(time.perf_counter() - began)
        print(1e6 * statistics.median(seconds), flush=True)


if __name__ == "__main__":
    main()
