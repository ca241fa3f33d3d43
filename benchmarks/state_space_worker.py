"""Times a state-space model of random weights in transformers; run by state_space.py with an interpreter that has it.

One JSON line in, one out: ``{"do": "prompt"}`` or ``{"do": "decode"}`` → ``{"seconds": …, "cpu": …}`` of a row.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main() -> None:
    """Answer until there is nothing more to do."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    values: dict[str, Any] = json.loads(sys.argv[1])
    rows, tokens, threads = (int(text) for text in sys.argv[2:5])
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**values)).eval()
    print(json.dumps({"about": f"transformers {transformers.__version__}, torch {torch.__version__}"}), flush=True)
    ids = torch.arange(rows)[None] % values["vocab_size"]
    with torch.no_grad():
        for line in sys.stdin:
            start, worked = time.perf_counter(), time.process_time()
            if json.loads(line)["do"] == "prompt":
                model(ids, use_cache=True)
                each = rows
            else:
                cache, token = model(ids[:, :4], use_cache=True).cache_params, ids[:, :1]
                start, worked = time.perf_counter(), time.process_time()
                for _ in range(tokens):
                    made = model(token, cache_params=cache, use_cache=True)
                    token = made.logits[:, -1].argmax(-1)[None]
                each = tokens
            took = {"seconds": (time.perf_counter() - start) / each, "cpu": (time.process_time() - worked) / each}
            print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
