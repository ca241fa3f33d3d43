"""What a person writes: Python and TOML take the same names and tables, and a slip is told what was meant."""

# Calls here are wrong on purpose, or looser than what is declared.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from volumetric import predict
from volumetric.base.errors import ArgumentError, ImmutableError, SpecError, VolumetricError
from volumetric.builders import sequential
from volumetric.clocked import Clocked
from volumetric.evolution import EvolutionConfig, Genome
from volumetric.evolution.evaluate import takes_random
from volumetric.evolution.problems import Gym
from volumetric.layers import Dense, Embedding, Sequential
from volumetric.layers.clock import Every
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.train import Adam, ArrayData, Cosine, CrossEntropy, GraphLoss, Huber, Systolic, TrainConfig, train
from volumetric.train.settings import settings_from

D = Dense(in_features=2, out_features=2)
NET = Network(layers=[D, D], input_shape=(2,), input_dtype="float32")
X = np.zeros((4, 2), np.float32)
WRITTEN: dict[str, Any] = {
    "loss": "cross_entropy",
    "optimiser": {"kind": "adam", "lr": 0.1},
    "schedule": {"kind": "warmup", "steps": 5, "then": {"kind": "cosine", "steps": 9}},
    "mode": "systolic",
    "dtype": "int8",
    "frozen": ["0.*"],
    "clip": 1,
    "epochs": 3,
}


def test_a_file_and_python_take_the_same() -> None:
    ours = TrainConfig(**WRITTEN)
    assert ours == settings_from({"train": WRITTEN}).train
    assert ours.optimiser == Adam(lr=0.1)
    assert ours.loss == CrossEntropy()
    assert ours.mode == Systolic()
    assert ours.frozen == ("0.*",)
    assert type(ours.clip) is float
    again = dataclasses.replace(ours, epochs=4)
    assert (again.optimiser, again.epochs) == (ours.optimiser, 4)


def test_functions_and_numbers_of_numpy_are_taken() -> None:
    config = TrainConfig(loss=lambda p, t: (p - t) ** 2, epochs=np.int64(3), clip=np.float32(1), schedule=lambda n: 0.5)
    assert isinstance(config.loss, GraphLoss)
    assert (type(config.epochs), type(config.clip)) == (int, float)
    result = train(NET, initialise(NET), (X + 1, X), config, device="reference")
    assert result.steps == 3


SLIPS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "class of an optimiser": (lambda: TrainConfig(optimiser=Adam), "Adam is a class", "Adam()"),  # pyright: ignore
    "number as optimiser": (lambda: TrainConfig(optimiser=0.1), "expected a name", "adamw"),
    "optimiser of nobody": (lambda: TrainConfig(optimiser="adams"), "unknown kind 'adams'", "did you mean 'adam'?"),
    "loss of probabilities": (lambda: TrainConfig(loss="binary_crossentropy"), "unknown kind", "logits"),
    "no steps": (lambda: TrainConfig(schedule="cosine"), "steps must be given", '{ kind = "cosine", steps = … }'),
    "clip of text": (lambda: TrainConfig(clip="1"), "clip: Expected `float | null`", "without quotes"),
    "epochs of text": (lambda: TrainConfig(epochs="5"), "epochs: Expected `int`", "a whole number, without quotes"),
    "no epochs": (lambda: TrainConfig(epochs=None), "epochs: expected int, got None", "leave it out"),
    "seed below 0": (lambda: TrainConfig(seed=-1), "seed must be 0 or more", "any integer"),
    "weights of losses": (lambda: TrainConfig(loss_weights=[1]), "expected weights by output", "output"),
    "mode": (lambda: TrainConfig(mode="online"), "unknown kind 'online'", "systolic"),
    "rate of text": (lambda: Adam(lr="0.1"), "adam: lr: Expected `float`", "without quotes"),
    "steps of text": (lambda: Cosine(steps="5"), "cosine: steps: Expected `int`", "without quotes"),
    "delta of text": (lambda: Huber(delta="1"), "huber: delta", "without quotes"),
    "optimizer": (lambda: TrainConfig(optimizer="adam"), "has no argument 'optimizer'", "did you mean 'optimiser'?"),
    "rate in the config": (lambda: TrainConfig(lr=0.1), "no argument 'lr'", "Adam(lr=0.01)"),
    "learning rate": (lambda: TrainConfig(learning_rate=0.1), "no argument 'learning_rate'", "Adam(lr=0.01)"),
    "rate of Adam": (lambda: Adam(learning_rate=0.1), "no argument", "did you mean 'lr'?"),
    "Adam by position": (lambda: Adam(0.1), "positional arguments, got 1", "Adam(lr=0.1)"),
    "batches in the config": (lambda: TrainConfig(batch_size=3), "no argument", "ArrayData"),
    "bias by position": (lambda: Dense(2, 8, "tanh", False), "3 positional arguments, got 4", "bias=False"),
    "bias as third": (
        lambda: Dense(2, 8, False),
        "activation: expected a name, got False",
        "bias=False needs its name",
    ),
    "layers one by one": (lambda: Sequential(D, D), "1 positional argument, got 2", "Sequential([…])"),
    "units": (lambda: Dense(in_features=2, units=8), "no argument 'units'", "did you mean 'out_features'?"),
    "missing": (lambda: Embedding(5), "needs embedding_dim", "Embedding(num_embeddings, embedding_dim)"),
    "no samples": (lambda: train(NET), "train needs samples", "train(network, x, y"),
    "no targets": (lambda: train(NET, X), "train needs y", "train(network, x, y"),
    "weights and no samples": (lambda: train(NET, initialise(NET)), "train needs samples", "train(network, x, y"),
    "predict without weights": (lambda: predict(NET, X), "needs inputs", "predict(network, params, inputs)"),
    "seed of text": (lambda: initialise(NET, seed="a"), "seed must be a whole number", "seed=1"),
    "weights of weights": (lambda: initialise(initialise(NET)), "expected a network, got Params", "initialise(network"),
    "size of text in a layer": (lambda: Dense(in_features="2", out_features=1), "above 0, got '2'", "without quotes"),
    "a quotient as size": (lambda: Dense(in_features=4 / 2, out_features=1), "above 0, got 2.0", "write 2; use //"),
    "no shape of rows": (lambda: Network(layers=[D]), "expects rows of", "input_shape=("),
    "environment by position": (lambda: Gym("CartPole-v1"), "positional arguments", "Gym(id='CartPole-v1')"),
    "population": (lambda: EvolutionConfig(pop_size=9), "no argument", "did you mean 'population'?"),
    "population of text": (lambda: EvolutionConfig(population="9"), "population: Expected `int`", "without quotes"),
    "builder": (lambda: sequential(2, 3, 1, hidden=4), "got 3", "sequential(2, 8, 8, 1)"),
    "grid by position": (lambda: Network([D], Grid(1)), "1 positional argument, got 2", "Network(…, grid=Grid(depth=1"),
    "clocks by position": (lambda: Clocked(NET, {}), "1 positional argument, got 2", "clocks={}"),
    "a class as layer": (lambda: Network(layers=[Dense]), "layer at 0.0.0.0: expected a layer", "Dense(…)"),
    "too many layers": (lambda: Network(layers=[D, D], grid=Grid(1)), "2 layers do not fit", "omit the grid"),
    "five numbers": (lambda: Network(layers={(0, 0, 0, 0, 0): D}), "is not a coordinate", "Coord(1, 0, 0, 2)"),
    "outside": (lambda: Network(grid=Grid(1), layers={(0, 0, 0, 1): D}), "outside of the grid 1×1×1×1", "from 0"),
    "clock": (lambda: Clocked(network=NET, clocks={(0,): 2}), "expected Every(…)", "every(2)"),
    "samples apart": (lambda: train(NET, initialise(NET), X, X), "expected a configuration, got ndarray", "(x, y)"),
    "epochs by two names": (lambda: train(NET, X, X, epochs=3, num_epochs=3), "set already", "pass only epochs"),
    "samples twice": (lambda: train(NET, X, X, data=(X, X)), "passed together", "pass x and y, or data"),
    "weights twice": (lambda: train(NET, initialise(NET), (X, X), params=initialise(NET)), "passed twice", "params"),
    "batches of a function": (
        lambda: train(NET, lambda epoch: [(X, X)], batch_size=2),
        "batch_size is of arrays",
        "x and y",
    ),
    "epochs of none": (lambda: train(NET, X, X, epochs=0), "epochs must be at least 1, got 0", "default"),
    "rate of text in train": (lambda: train(NET, X, X, lr="0.1"), "adamw: lr: Expected `float`", "without quotes"),
    "momentum": (lambda: train(NET, X, X, momentum=0.9), "no argument 'momentum'", '"kind": "momentum"'),
    "callbacks": (lambda: train(NET, X, X, callbacks=[]), "no argument 'callbacks'", "reporters="),
    "unknown in train": (lambda: train(NET, X, X, epoch=3), "no argument 'epoch'", "did you mean 'epochs'?"),
    "seed of text in train": (lambda: train(NET, X, X, seed="1"), "seed must be 0 or more", "integer"),
    "progress of text": (lambda: train(NET, X, X, progress="bar"), "progress must be True or False", "quiet"),
    "class of a config": (lambda: train(NET, initialise(NET), (X, X), TrainConfig), "got the class", "TrainConfig()"),
    "config as a table": (
        lambda: train(NET, initialise(NET), (X, X), {"epochs": 3}),
        "expected a configuration, got dict",
        "TrainConfig(epochs=",
    ),
    "no weights": (lambda: train(NET, X, X, params=X), "expected weights, got ndarray", "train(network, params"),
    "no network": (lambda: train([D], initialise(NET), (X, X)), "expected a network, got list", "Network(layers=[…])"),
    "size of text": (lambda: ArrayData(inputs=X, targets=X, batch_size="3"), "batch_size: Expected", "without quotes"),
    "split above 1": (lambda: train(NET, initialise(NET), (X, X), validation=5), "5 is not a fraction of 4", "0.2"),
    "flat inputs": (lambda: train(NET, initialise(NET), (X.ravel()[:4], X), device="reference"), "reads float32", ""),
    "a network is set": (lambda: setattr(NET, "layers", {}), "Network is immutable", "dataclasses.replace"),
    "a word is set": (lambda: setattr(D, "nonsense", 1), "Dense is immutable", "dataclasses.replace"),
    "all genomes": (lambda: takes_random(lambda genomes, config: 0), "neat-python's signature", "def fitness(genome)"),
    "weights of another": (
        lambda: train(NET, initialise(sequential(2, 1)), (X, X), device="reference"),
        "parameters do not fit the network",
        "initialise(network)",
    ),
}


@pytest.mark.parametrize(("slip", "message", "hint"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_told_what_was_meant(slip: Callable[[], Any], message: str, hint: str) -> None:
    with pytest.raises(VolumetricError) as caught:
        slip()
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_calls_that_do_not_fit_are_type_errors_as_python_s_own() -> None:
    with pytest.raises(TypeError):
        Adam(0.1)  # pyright: ignore[reportCallIssue]
    assert issubclass(ArgumentError, (TypeError, SpecError))
    assert str(inspect.signature(Adam)).startswith("(*, lr: ")  # who asks for it still sees what there is
    with pytest.raises(dataclasses.FrozenInstanceError):
        NET.links = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_genome_s_fitness_is_returned_not_set() -> None:
    genome = object.__new__(Genome)
    with pytest.raises(ImmutableError, match="'fitness' cannot be set") as caught:
        genome.fitness = 1  # pyright: ignore[reportAttributeAccessIssue]
    assert "def fitness(genome)" in (caught.value.hint or "")


def test_layers_in_a_list_and_coordinates_in_tuples() -> None:
    assert Network(grid=Grid(2), layers={Coord(0): D, Coord(1): D}, input_shape=(2,), input_dtype="float32") == NET
    link = Link(kind="activation", source=(0, 0, 0), target="1.0.0.1", delay=1)
    placed = Network(
        layers={(0, 0, 0, 0): D, (1, 0, 0, 1): D, "1.0.0.0": D},
        links=(link,),
        inputs={"more": Port(coord=(1,), shape=(2,), combine="add")},
        outputs={"first": (0,)},
        disabled={(1,)},
        input_shape=2,
        input_dtype="float32",
    )
    assert placed.grid == Grid(2, 1, 1, 2)
    assert [*placed.layers] == [Coord(0), Coord(1), Coord(1, 0, 0, 1)]
    assert (placed.links[0].source, placed.links[0].target) == (Coord(0), Coord(1, 0, 0, 1))
    assert (placed.outputs["first"], placed.disabled) == (Coord(0), {Coord(1)})
    assert Network.from_json(placed.to_json()) == placed
    in_slots = Network(grid=Grid(1, 1, 1, 2), layers=[D, D], input_shape=(2,), input_dtype="float32")
    assert [*in_slots.layers] == [Coord(0), Coord(0, 0, 0, 1)]
    machine = Clocked(network=NET, clocks={(0, 0, 0, 0): "every(2)"})
    assert dict(machine.clocks) == {Coord(0): Every(2)}


def test_integers_are_taken_for_features_where_no_value_changes() -> None:
    x = [[1, 2], [3, 4]]
    config = TrainConfig(optimiser=Adam(lr=0.1))
    floats, ints = (
        train(NET, initialise(NET), (np.array(x, kind), x), config, device="reference").history[-1].loss
        for kind in (np.float32, np.int64)
    )
    assert floats == ints
    with pytest.raises(VolumetricError, match="cannot hold 16777217 of int64"):
        train(NET, initialise(NET), (np.array([[2**24 + 1, 0]]), [[0, 0]]), config, device="reference")


def test_a_width_is_a_hidden_layer() -> None:
    assert sequential(2, 1, hidden=4) == sequential(2, 1, hidden=(4,))
    settings = settings_from({"network": {"options": {"hidden": 4}}})
    assert settings.network.options == {"hidden": 4}
