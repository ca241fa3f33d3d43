"""What watching a training run costs: processor time of runs with and without a watch, and with a page.

    python -m benchmarks training_watch --device cpu --epochs 1000

Runs of one network alternate, and the medians are compared. Processor time of all threads counts, so the thread that
prepares messages is in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.arguments import argument_parser
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.scope.training_live import training_viewer
from volumetric.scope.training_watch import TrainingWatch
from volumetric.train import train
from volumetric.train.problems import spirals


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hidden", type=int, default=64, help="width of the two hidden layers")
    parser.add_argument("--epochs", type=int, default=1000, help="of a run, each of 15 updates")
    parser.add_argument("--runs", type=int, default=5, help="of each kind")
    chosen = parser.parse_args()
    measure(chosen.device, chosen.hidden, chosen.epochs, chosen.runs)


def measure(device: str, hidden: int, epochs: int, runs: int) -> None:
    """Train on spirals again and again, and print medians."""
    problem, network = spirals(), sequential(2, 3, hidden=(hidden, hidden), activation="tanh")

    def seconds(watch: TrainingWatch | None, *, layers: bool) -> float:
        began = time.process_time()
        train(
            network,
            initialise(network),
            (problem.inputs, problem.targets),
            epochs=epochs,
            lr=0.01,
            loss="cross_entropy",
            validation=0.2,
            device=device,
            reporters=[watch or (lambda event: None)],
            observers=[watch] if watch is not None and layers else [],
        )
        return time.process_time() - began

    def served() -> float:
        watch = TrainingWatch()
        server = training_viewer(watch).serve()
        try:
            return seconds(watch, layers=True)
        finally:
            server.close()

    kinds: dict[str, Callable[[], float]] = {
        "no watch": lambda: seconds(None, layers=False),
        "reporter": lambda: seconds(TrainingWatch(), layers=False),
        "reporter and observer": lambda: seconds(TrainingWatch(), layers=True),
        "with a page": served,
    }
    seconds(None, layers=False)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(runs):
        for name, run in kinds.items():
            times[name].append(run())
    base = statistics.median(times["no watch"])
    for name, of in times.items():
        middle = statistics.median(of)
        spread, more = f"{min(of):.3f} … {max(of):.3f}", 100 * (middle / base - 1)
        print(f"{name:<22} {middle:7.3f} s of processor time ({spread})  {more:+.1f} %")


if __name__ == "__main__":
    main()
