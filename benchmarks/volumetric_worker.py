"""The volumetric side of `compare_llamacpp.py`: one process, one file, measurements as JSON on stdout.

Usage: ``python volumetric_worker.py MODEL JOB.json [--device DEVICE] [--compute COMPUTE]``
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path

import numpy as np

import volumetric
from volumetric.devices.named_devices import open_device
from volumetric.loaders import open_model
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Executable, RunOptions
from volumetric.run.lower import lower


def prefill(executable: Executable, ids: list[int]) -> float:
    """Tokens/s of one call that takes the whole prompt."""
    state = executable.new_state()
    tokens = np.array(ids, np.int32)
    start = time.perf_counter()
    executable.forward(state, tokens)
    return len(ids) / (time.perf_counter() - start)


def decode(executable: Executable, prompt: list[int], count: int) -> tuple[float, list[int]]:
    """Tokens/s of `count` greedy steps after `prompt`, and the ids."""
    state = executable.new_state()
    first = int(executable.forward(state, np.array(prompt, np.int32)).argmax())
    start = time.perf_counter()
    ids = list(islice(greedy_ids(executable, state, first), count))
    return count / (time.perf_counter() - start), [first, *ids]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("job", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compute", default="auto")
    args = parser.parse_args()
    job = json.loads(args.job.read_text())
    loaded = open_model(args.model)
    device = open_device(args.device)
    options = RunOptions(context=job["context"], threads=job["threads"], compute=args.compute)
    executable = device.compile(lower(loaded.network), loaded.params, options)
    prefill(executable, job["long_prompt"])
    decode(executable, job["prompt"], 8)
    fills = [prefill(executable, job["long_prompt"]) for _ in range(job["repeats"])]
    decodes = [decode(executable, job["prompt"], job["new_tokens"]) for _ in range(job["repeats"])]
    speeds = {"prefill": fills, "decode": [speed for speed, _ in decodes], "ids": decodes[0][1]}
    print(json.dumps({"version": volumetric.__version__} | speeds))


if __name__ == "__main__":
    main()
