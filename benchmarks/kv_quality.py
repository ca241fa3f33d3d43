"""What rounding keys and values costs: logits after a text with each storage of the cache, next to float32.

    python -m benchmarks kv_quality MODEL TEXT_FILE [--tokens 1024] [--device cpu] [--storages float16,int8]

Activations stay in float32, so that the cache is the only difference. Prints the mean KL divergence from the float32
cache, the share of equal most likely tokens, the error of the centred logits, and bytes a token of context.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import volumetric
from benchmarks.arguments import argument_parser


def centred_logits(model: Any, ids: list[int]) -> NDArray[np.float64]:
    """Logits of every token, each row's mean taken off: a constant changes no probability."""
    logits = model.logits(ids).astype(np.float64)
    return logits - logits.mean(axis=-1, keepdims=True)


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--storages", default="float16,int8")
    args = parser.parse_args()
    exact: NDArray[np.float64] | None = None
    print("| cache | tokens | mean KL | equal top-1 | NMSE | bytes a token |\n" + "| --- " * 6 + "|")
    for storage in ["float32", *args.storages.split(",")]:
        with volumetric.load(args.model, device=args.device, compute="float32", kv_dtype=storage) as model:
            if model.tokenizer is None:
                parser.error("the model has no tokenizer")
            ids = model.tokenizer.encode(args.text.read_text(encoding="utf-8"))[: args.tokens]
            logits, size = centred_logits(model, ids), model.executable.memory.state_per_token
        exact = logits if exact is None else exact
        p, q = log_softmax(exact), log_softmax(logits)
        divergence = (np.exp(p) * (p - q)).sum(axis=-1).mean()
        same = (exact.argmax(axis=-1) == logits.argmax(axis=-1)).mean()
        error = np.square(logits - exact).sum() / np.square(exact).sum()
        print(f"| {storage} | {len(ids)} | {divergence:.1e} | {same:.1%} | {error:.1e} | {size:,} |", flush=True)


if __name__ == "__main__":
    main()
