"""Learning samples with whole networks: fitness is their quality on samples, optionally after some training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.evolution.evaluate import Cohort, Scores, score_each
from volumetric.evolution.grids.grid_config import KINDS, GridConfig
from volumetric.evolution.grids.grid_genome import GridGenome, outputs_of, separate_samples
from volumetric.evolution.problems.demands import with_goal
from volumetric.evolution.problems.table_problem import Table
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train import AdamW, ArrayData, CrossEntropy, TrainConfig, train
from volumetric.train.learner import OpenLearner
from volumetric.train.learner_opening import open_learner
from volumetric.train.losses import MSE
from volumetric.train.problems import Problem as LearningProblem

F64Array = NDArray[np.float64]
_TRAINING_SEED = 5


@cache
def _learner() -> OpenLearner:
    """Return the learner of genomes, with one thread: processes share the genomes, and networks are small."""
    return open_learner("cpu", threads=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleProblem:
    """Fitness of a grid is its accuracy on held-out samples, or one minus the unexplained share of their variance.

    Samples are independent: a layer that reads other rows, such as a recurrent layer, gets each sample as a separate
    sequence, of one row if samples are rows. Fitness does not depend on their order.

    With `epochs`, a copy of the genome's weights is first trained on the other samples. Trained weights are evaluated
    but not inherited, so that evolution selects structures that learn well (Hinton & Nowlan 1987).

    Attributes
    ----------
    learning : the samples, with classes or values
    epochs : training passes through the samples; 0 evaluates the weights without training, on all samples
    lr, batch : learning rate and batch size of the training, by Adam
    held : share of the samples held out for evaluation, if there is training
    goal : fitness that counts as solved
    cost : fitness penalty for each thousand weights
    """

    separable: ClassVar[bool] = True

    learning: LearningProblem
    epochs: int = 0
    lr: float = 3e-3
    batch: int = 32
    held: float = 0.3
    goal: float = 0.99
    cost: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.epochs < 0 or self.batch < 1 or not self.lr > 0 or not 0 < self.held < 1 or self.cost < 0:
            raise SpecError("samples need epochs ≥ 0, batch ≥ 1, lr > 0, 0 < held < 1 and cost ≥ 0")
        _check_judged(self.learning)

    @property
    def of_steps(self) -> bool:
        """Whether samples are sequences with a target for each step, and not rows such as numbers or images."""
        x, y = self.learning.inputs, self.learning.targets
        return y.ndim == (2 if self.learning.classes else 3) and x.ndim >= 3 and x.shape[:2] == y.shape[:2]

    def configure(self, config: GridConfig) -> GridConfig:
        """Return `config` with missing values: the fitness threshold, and whether layers may read other rows.

        Layers may read other rows if samples are sequences, or if the configuration names the kinds of layers.

        Raises
        ------
        SpecError : it minimises fitness
        """
        rules = config.mutation
        if rules.sequences is None:
            rules = dataclasses.replace(rules, sequences=self.of_steps or rules.kinds != KINDS)
        return dataclasses.replace(with_goal(config, "samples", self.goal), mutation=rules)

    def shaped(self, network: Network) -> Array:
        """Return the inputs as `network` reads them: rows, or sequences ``[samples, T, …]``.

        Raises
        ------
        SpecError : the shapes do not fit, or sequences have no target for each step
        """
        x, shape = self.learning.inputs, network.input_shape
        if self.of_steps and shape == x.shape[2:]:
            return x
        if int(np.prod(x.shape[1:])) != int(np.prod(shape)):
            steps = x.ndim > 2 and shape == x.shape[2:]
            raise SpecError(
                f"the network reads rows of shape {list(shape)}, but the samples have {list(x.shape[1:])}",
                hint="pass a target for each step to learn them as sequences" if steps else None,
            )
        return x.reshape(len(x), *shape)

    def score_all(self, cohort: Cohort) -> Scores:
        """Return the fitness of every grid; a grid that cannot be built, trained or evaluated is a failure."""
        return score_each(self._score, cohort)

    def _score(self, genome: object) -> float:
        if not isinstance(genome, GridGenome):
            raise SpecError("samples need grids; use a table for genomes of nodes and connections")
        x, y = self.shaped(genome.network), self.learning.targets
        params = genome.params
        if self.epochs:
            data = ArrayData(inputs=x, targets=y, batch_size=self.batch, seed=_TRAINING_SEED)
            data, judged = data.split(self.held)
            params = self._trained(genome.network, params, data)
            x, y = judged.features, judged.answers
        outputs = outputs_of(genome.network, params, x)
        weights = sum(int(np.prod(store.shape)) for store in genome.params.values())
        return self._quality(np.asarray(outputs, np.float64), y) - self.cost * weights / 1000

    def _trained(self, network: Network, params: Params, data: ArrayData) -> Params:
        loss = CrossEntropy() if self.learning.classes else MSE()
        config = TrainConfig(loss=loss, optimiser=AdamW(lr=self.lr, weight_decay=0.0), epochs=self.epochs, clip=1.0)
        x = separate_samples(network, data.features)
        y = data.answers[:, None] if x.ndim != data.features.ndim else data.answers
        return train(network, params, dataclasses.replace(data, inputs=x, targets=y), config, learner=_learner()).params

    def _quality(self, outputs: F64Array, targets: Array) -> float:
        if self.learning.classes:
            return float((outputs.argmax(axis=-1) == targets).mean()) if np.isfinite(outputs).all() else float("nan")
        if outputs.shape != targets.shape:
            raise ShapeError(f"outputs have shape {outputs.shape}, targets {targets.shape}")
        error = float(((outputs - targets) ** 2).mean())
        return 1.0 - error / max(float(targets.var()), 1e-12)


def as_table(learning: LearningProblem) -> Table:
    """Return samples as a table problem for genomes of nodes and connections, with one output for each class.

    Raises
    ------
    SpecError : the samples are tokens or have a mask
    """
    _check_judged(learning)
    x = learning.inputs.reshape(len(learning.inputs), -1)
    y = np.eye(len(learning.classes))[learning.targets] if learning.classes else learning.targets
    best = float(len(x)) if learning.classes else float(y.size)
    return Table.of(x, y, best=best)


def _check_judged(learning: LearningProblem) -> None:
    """Raise `SpecError` for samples that cannot be evaluated."""
    if learning.vocabulary:
        raise SpecError("the targets are tokens, but evolution supports only classes and values")
    if learning.mask is not None:
        raise SpecError("the samples have a mask, but evolution weighs all samples equally", hint="remove the mask")
