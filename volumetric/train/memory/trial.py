"""One trial: a network or a baseline learns a task at one length and is evaluated at several."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.builders import auto_stack, chain
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.fabric.layer.cell_populations import CellPopulation, InPort, OutPort
from volumetric.fabric.layer.cell_steps import SLSTM
from volumetric.fabric.layer.edge_rules import LocalRadius
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_sets import XBand
from volumetric.layers import Dense, Embedding, LayerSpec
from volumetric.network import Network, Params, initialise
from volumetric.train.data import Batch, StreamData
from volumetric.train.losses import MSE, CrossEntropy
from volumetric.train.memory.memory_baselines import baseline, score
from volumetric.train.memory.memory_task import MemoryTask
from volumetric.train.optim import Adam
from volumetric.train.problems import Problem
from volumetric.train.schedules import Cosine, WarmUp
from volumetric.train.trainer import train
from volumetric.train.training_config import TrainConfig
from volumetric.train.training_events import Event, StepEvent

BASELINES: Final = ("prior", "bag", "last16", "linear")
_SIDE: Final = 64  # parallel streams, and rows of a call, in evaluation
_BATCHES: Final = 16  # updates whose samples are drawn at once
_LOOKS: Final = 50  # updates whose mean loss is checked
_WARM: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBudget:
    """Budget of learning.

    Attributes
    ----------
    steps, batch : updates, and samples in each
    rate : learning rate of Adam, with 50 updates of warm-up and then a cosine to 0
    enough : mean loss of 50 updates that ends learning early
    judged : test samples at each length
    """

    steps: int = 1000
    batch: int = 32
    rate: float = 3e-3
    enough: float = 0.002
    judged: int = 256

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("steps", 1), ("batch", 1), ("judged", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not (np.isfinite(self.rate) and self.rate > 0):
            raise SpecError(f"the learning rate must be above 0, got {self.rate}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Definition of a trial.

    Attributes
    ----------
    task : its name
    model : pattern of cells (see `network_for`), or a baseline
    lengths : rows of samples: learn at the first, evaluate at all
    """

    task: str
    model: str
    width: int = 64
    seed: int = 0
    lengths: tuple[int, ...] = ()
    budget: TrialBudget = field(default_factory=TrialBudget)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON data."""
        return {**asdict(self), "lengths": list(self.lengths)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """Result of a trial.

    Attributes
    ----------
    scores : length → accuracy, or squared error of values (see `score`)
    loss : mean of the last updates; None for a baseline
    steps : updates made
    """

    trial: Trial
    scores: Mapping[int, float]
    loss: float | None = None
    steps: int = 0
    parameters: int = 0
    seconds: float = 0.0


def run_trial(trial: Trial, task: MemoryTask, *, device: AnyDevice = "cpu") -> TrialOutcome:
    """Train and evaluate.

    Raises
    ------
    SpecError, ShapeError : lengths, width or pattern are invalid
    DivergedError : a number was not finite
    """
    began, opened = time.perf_counter(), open_device(device)
    lengths = trial.lengths or (task.length, 4 * task.length)
    if trial.model in BASELINES:
        scores = {n: _baseline(trial, task, n, opened) for n in lengths}
        return TrialOutcome(trial=trial, scores=scores, seconds=time.perf_counter() - began)
    problem = task.make(trial.seed, 1, lengths[0])
    network = network_for(problem, trial.model, trial.width)
    losses: deque[float] = deque(maxlen=_LOOKS)
    budget = trial.budget

    def note(event: Event) -> None:
        if isinstance(event, StepEvent):
            losses.append(event.loss)

    def batches(epoch: int) -> Iterator[Batch]:
        dense = {"dense": True} if task.dense else {}
        samples = task.make(trial.seed, _BATCHES * budget.batch, lengths[0], epoch=epoch, **dense)
        for at in range(0, len(samples.inputs), budget.batch):
            part = slice(at, at + budget.batch)
            yield Batch(
                samples.inputs[part], samples.targets[part], None if samples.mask is None else samples.mask[part]
            )

    warm = max(1, min(_WARM, budget.steps // 4))
    config = TrainConfig(
        loss=MSE() if task.regression else CrossEntropy(),
        optimiser=Adam(lr=budget.rate),
        schedule=WarmUp(steps=warm, then=Cosine(steps=max(1, budget.steps - warm))),
        clip=1.0,
        epochs=-(-budget.steps // _BATCHES),
        max_steps=budget.steps,
        seed=trial.seed,
    )
    result = train(
        network,
        initialise(network, trial.seed),
        StreamData(batches),
        config,
        reporters=[note],
        device=opened,
        stop=lambda: len(losses) == _LOOKS and sum(losses) / _LOOKS < budget.enough,
    )
    return TrialOutcome(
        trial=trial,
        scores={
            n: _judge(network, result.params, task.make(trial.seed, budget.judged, n, split="test"), opened)
            for n in lengths
        },
        loss=sum(losses) / len(losses),
        steps=result.steps,
        parameters=sum(int(np.prod(store.shape)) for store in result.params.values()),
        seconds=time.perf_counter() - began,
    )


def _baseline(trial: Trial, task: MemoryTask, length: int, device: AnyDevice) -> float:
    known = task.make(trial.seed, 1000, length)
    return baseline(trial.model, known, task.make(trial.seed, 1000, length, split="test"), device=device)


def _judge(network: Network, params: Params, problem: Problem, device: Any) -> float:
    """Run all samples through streams, which support any length without recompilation."""
    count, length = problem.inputs.shape[:2]
    side = min(count, _SIDE)
    stream = device.stream(network, params, batch=side)
    chunks: list[Array] = []
    for at in range(0, count, side):
        x = problem.inputs[at : at + side]
        some = np.concatenate([x, np.repeat(x[:1], side - len(x), 0)])
        stream.reset()
        parts = [stream.run(some[:, row : row + _SIDE]) for row in range(0, length, _SIDE)]
        chunks.append(np.concatenate(parts, 1)[: len(x)])
    stream.close()
    outputs = np.concatenate(chunks)
    return score(problem, outputs.argmax(-1) if problem.classes else outputs)


FABRIC: Final = "fabric"
_LATTICE, _REACH, _CELL = 4, 1.5, 16


def network_for(problem: Problem, model: str, width: int) -> Network:
    """Return the named network, with an embedding (or a projection for values) and a head.

    Parameters
    ----------
    model : patterns of `volumetric.builders.auto_stack`, one for each layer, separated by slashes: ``"M"``,
        ``"AXMS/L"``; or ``"fabric"``: 4 × 4 nodes, with inputs in the first column, outputs in the last, and sLSTMs of
        16 in between that read their neighbours, twice for each row, so that a row reaches the outputs
    width : features of a row inside

    Raises
    ------
    SpecError : the cell does not exist or does not support the width
    """
    if model == FABRIC:
        return _fabric(problem, width)
    patterns = model.split("/")
    ids = problem.vocabulary or None
    inputs = None if ids else problem.inputs.shape[-1]
    return auto_stack(width, len(patterns), patterns, embed=ids, inputs=inputs, classes=problem.outputs)


def _fabric(problem: Problem, width: int) -> Network:
    first: LayerSpec
    if problem.vocabulary:
        first = Embedding(num_embeddings=problem.vocabulary, embedding_dim=width)
    else:
        first = Dense(in_features=problem.inputs.shape[-1], out_features=width)
    if width < 1:
        raise SpecError(f"a fabric needs a width of 1 or more, got {width}")
    body = Fabric(
        graph=Lattice(sizes=(_LATTICE, _LATTICE)),
        inputs=(InPort(name="rows", nodes=XBand("low"), dim=width),),
        outputs=(OutPort(name="made", nodes=XBand("high"), dim=width),),
        populations=(CellPopulation(name="cells", cell=SLSTM(hidden=_CELL)),),
        connectivity=(LocalRadius(radius=_REACH),),
        public=_CELL,
        message=_CELL,
        head_dim=_CELL,
        inner_steps=_LATTICE - 2,
    )
    shape, dtype = ((), "int32") if problem.vocabulary else (problem.inputs.shape[2:], "float32")
    return chain([first, body, Dense(in_features=width, out_features=problem.outputs)], shape, dtype)
