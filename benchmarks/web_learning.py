"""A network that learns in Chromium: updates per second of an export, beside TensorFlow.js' WebGPU backend.

    python -m benchmarks web_learning [--tfjs PACKAGE --tfjs-webgpu PACKAGE] [--widths 784,128,10] [--batch 64]
        [--updates 200] [--rounds 3] [--software] [--flags="…"]

The packages are @tensorflow/tfjs and @tensorflow/tfjs-backend-webgpu of npm, unpacked. Both train a perceptron with
tanh by Adam on the same random classes, `batch` samples an update, and read every loss, as pages that draw curves do.
Printed: updates per second: median, lowest and highest of the rounds, and the losses of the first round.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.browser_page import add_browser_arguments, browser, run
from benchmarks.web_replay import rates
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.train import Adam, CrossEntropy, TrainConfig
from volumetric.web import export_network
from volumetric.web.learner_network import LearnerNetwork

OURS = """
const {load} = await import("/engine/engine.js");
const model = await load("/net/"), learner = await model.learner();
const x = Float32Array.from(samples.flat()), times = [], losses = [];
for (let round = 0; round < rounds + 1; round++) {
  await learner.reset();
  const start = performance.now();
  for (let i = 0; i < updates; i++) {
    const loss = await learner.update(x, classes);
    if (round === 1) losses.push(loss);
  }
  times.push(performance.now() - start);
}
return {times: times.slice(1), losses, variant: model.info.variant};
"""
THEIRS = """
for (const address of ["/tfjs/dist/tf.min.js", "/tfjs_webgpu/dist/tf-backend-webgpu.min.js"]) {
  await new Promise((onload, onerror) => {
    document.head.append(Object.assign(document.createElement("script"), {src: address, onload, onerror}));
  });
}
await tf.setBackend("webgpu");
await tf.ready();
const times = [], losses = [];
for (let round = 0; round < rounds + 1; round++) {
  const model = tf.sequential();
  widths.slice(1).forEach((units, i) => model.add(tf.layers.dense({
    units, activation: i < widths.length - 2 ? "tanh" : "softmax", ...(i ? {} : {inputShape: [widths[0]]}),
  })));
  model.compile({optimizer: tf.train.adam(rate), loss: "categoricalCrossentropy"});
  const x = tf.tensor2d(samples), y = tf.oneHot(tf.tensor1d(classes, "int32"), widths.at(-1));
  await model.trainOnBatch(x, y);
  const start = performance.now();
  for (let i = 0; i < updates; i++) {
    const loss = await model.trainOnBatch(x, y);
    if (round === 1) losses.push(loss);
  }
  times.push(performance.now() - start);
}
return {times: times.slice(1), losses, variant: tf.getBackend()};
"""
RATE = 1e-3


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--tfjs", type=Path, help="the unpacked npm package @tensorflow/tfjs")
    parser.add_argument("--tfjs-webgpu", type=Path, help="the unpacked npm package @tensorflow/tfjs-backend-webgpu")
    parser.add_argument("--widths", default="784,128,10", help="inputs, hidden layers, classes")
    parser.add_argument("--batch", type=positive_int, default=64)
    parser.add_argument("--updates", type=positive_int, default=200)
    parser.add_argument("--rounds", type=positive_int, default=3)
    add_browser_arguments(parser)
    args = parser.parse_args()
    widths = [int(width) for width in args.widths.split(",")]
    network = sequential(*widths, activation="tanh")
    config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=RATE))
    rng = np.random.default_rng(1)
    names = {
        "samples": rng.standard_normal((args.batch, widths[0])).astype(np.float32).tolist(),
        "classes": rng.integers(0, widths[-1], args.batch).tolist(),
        "updates": args.updates,
        "rounds": args.rounds,
    }
    with tempfile.TemporaryDirectory() as home:
        learner = LearnerNetwork(network, initialise(network, 1), config, batches=(args.batch,))
        export_network(learner, home + "/export")
        with browser(args, net=Path(home) / "export") as (page, server):
            results = {"volumetric": run(page, OURS, **names)}
            if args.tfjs is not None and args.tfjs_webgpu is not None:
                server.folders |= {"tfjs": args.tfjs, "tfjs_webgpu": args.tfjs_webgpu}
                page.open(f"{server.url}/")
                results["TensorFlow.js"] = run(page, THEIRS, widths=widths, rate=RATE, **names)
    for name, result in results.items():
        speed = rates([one / 1000 for one in result["times"]], args.updates)
        first, last = result["losses"][0], result["losses"][-1]
        print(f"{name:14} {result['variant']:18} updates/s {speed}; loss {first:.4f} → {last:.4f}")


if __name__ == "__main__":
    main()
