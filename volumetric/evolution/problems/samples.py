"""Learn samples with whole networks: fitness is how well they do on samples, after a little training if asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.grids.genome import GridGenome
from volumetric.evolution.problems.table import Table
from volumetric.network import Network
from volumetric.train import AdamW, ArrayData, CrossEntropy, ReferenceLearner, TrainConfig, train
from volumetric.train.losses import MSE
from volumetric.train.problems import Problem as LearningProblem
from volumetric.weights import Params

F64Array = NDArray[np.float64]
_TRAINING_SEED = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Fitness of a grid is its accuracy on samples held back, or one minus its share of their variance unexplained.

    With `epochs`, a copy of the genome's weights is trained on the other samples first. What it learns is judged and
    not inherited, so that evolution chooses structures that learn well (Hinton & Nowlan 1987).

    Attributes
    ----------
    learning : the samples, with classes or values
    epochs : times that training goes through the samples; 0 judges the weights as they are, on all samples
    rate, batch : of the training, by Adam
    held : share of the samples that judge where there is training
    goal : fitness at which the problem counts as solved
    cost : what each thousand weights takes from the fitness
    """

    separable: ClassVar[bool] = True

    learning: LearningProblem
    epochs: int = 0
    rate: float = 3e-3
    batch: int = 32
    held: float = 0.3
    goal: float = 0.99
    cost: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.epochs < 0 or self.batch < 1 or not self.rate > 0 or not 0 < self.held < 1 or self.cost < 0:
            raise SpecError("samples need epochs ≥ 0, batch ≥ 1, rate > 0, 0 < held < 1 and cost ≥ 0")
        if self.learning.vocabulary:
            raise SpecError("this problem is about tokens; evolution judges classes and values")

    def shaped(self, network: Network) -> Array:
        """Return the inputs as `network` reads them; raise `SpecError` if they do not fit."""
        x, wanted = self.learning.inputs, network.input_shape
        if int(np.prod(x.shape[1:])) != int(np.prod(wanted)):
            raise SpecError(f"the network reads rows of shape {list(wanted)}, the samples have {list(x.shape[1:])}")
        return x.reshape(len(x), *wanted)

    def score_all(self, cohort: Cohort) -> F64Array:
        """Return the fitness of every grid of a generation."""
        return np.array([self._score(cohort.genome(row)) for row in range(len(cohort))])

    def _score(self, genome: object) -> float:
        if not isinstance(genome, GridGenome):
            raise SpecError("samples are learnt by grids; use a table for genomes of nodes and connections")
        x, y = self.shaped(genome.network), self.learning.targets
        params = genome.params
        if self.epochs:
            data = ArrayData(inputs=x, targets=y, batch_size=self.batch, seed=_TRAINING_SEED)
            data, judged = data.split(self.held)
            params = self._trained(genome.network, params, data)
            x, y = judged.inputs, judged.targets
        outputs = GridGenome(
            network=genome.network, params=params, markings=genome.markings, link_markings=genome.link_markings
        ).forward(x)
        weights = sum(int(np.prod(store.shape)) for store in genome.params.values())
        return self._quality(np.asarray(outputs, np.float64), y) - self.cost * weights / 1000

    def _trained(self, network: Network, params: Params, data: ArrayData) -> Params:
        loss = CrossEntropy() if self.learning.classes else MSE()
        config = TrainConfig(loss=loss, optimiser=AdamW(rate=self.rate, weight_decay=0.0), epochs=self.epochs, clip=1.0)
        return train(network, params, data, config, learner=ReferenceLearner).params

    def _quality(self, outputs: F64Array, targets: Array) -> float:
        if self.learning.classes:
            return float((outputs.argmax(axis=-1) == targets).mean()) if np.isfinite(outputs).all() else float("nan")
        error = float(((outputs - targets) ** 2).mean())
        return 1.0 - error / max(float(targets.var()), 1e-12)


def as_table(learning: LearningProblem) -> Table:
    """Return samples as the problem of a table, for genomes of nodes and connections; classes become one output each.

    Raises
    ------
    SpecError : the samples are tokens
    """
    if learning.vocabulary:
        raise SpecError("this problem is about tokens; evolution judges classes and values")
    x = learning.inputs.reshape(len(learning.inputs), -1)
    y = np.eye(len(learning.classes))[learning.targets] if learning.classes else learning.targets
    best = float(len(x)) if learning.classes else float(y.size)
    return Table.of(x, y, best=best)
