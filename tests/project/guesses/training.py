"""Guesses about training and evolution. Each code ends with an assertion; `x`, `y`, `net` and so on are set before."""

from __future__ import annotations

from tests.project.guesses.guess import Guess

XOR = """
import numpy as np
import volumetric
from volumetric import sequential
x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
y = np.array([0, 1, 1, 0])
net = sequential(2, 8, 1, activation="tanh")
"""
THREE = """
import numpy as np
import volumetric
from volumetric import sequential
from volumetric.train import train
x = np.random.default_rng(0).standard_normal((48, 4))
labels = x[:, :3].argmax(1)
net = sequential(4, 12, 3, activation="tanh")
"""

GUESSES = [
    Guess(
        peer="keras",
        code=XOR
        + """
result = volumetric.train(net, x, y, epochs=300, learning_rate=0.05, loss="mse", optimizer="adam", verbose=0)
assert (result.predict(x).round()[:, 0] == y).all()
""",
    ),
    Guess(
        peer="keras",
        code=XOR
        + """
from volumetric.train import train
history = train(net, x, y, epochs=3, batch_size=2, validation_data=(x, y)).history
assert len(history["loss"]) == len(history["val_loss"]) == 3
""",
    ),
    Guess(
        peer="keras",
        code=THREE
        + """
result = train(net, x, labels, epochs=40, lr=0.05, loss="sparse_categorical_crossentropy", validation_split=0.25)
assert result.history["val_loss"][-1] < result.history["val_loss"][0]
""",
    ),
    Guess(
        peer="keras",
        code=XOR
        + """
from volumetric.base.errors import ArgumentError
from volumetric.train import train
try:
    train(net, x, y, metrics=["accuracy"])
except ArgumentError as error:
    answer = error.hint
assert "accuracy=True" in answer
""",
    ),
    Guess(
        peer="torch",
        code=THREE
        + """
result = train(net, x, labels, num_epochs=40, lr=0.05, criterion="CrossEntropyLoss", optimizer="AdamW", batch=16)
assert (result(x).argmax(1) == labels).mean() > 0.8
""",
    ),
    Guess(
        peer="torch",
        code=THREE
        + """
class Tensor:  # as torch's, an array by its own method
    def __init__(self, a): self.a = a
    def __array__(self, dtype=None, copy=None): return self.a if dtype is None else self.a.astype(dtype)
result = train(net, Tensor(x), Tensor(labels[:, None]), loss="cross_entropy", epochs=2)
assert result.steps == 4
""",
    ),
    Guess(
        peer="torch",
        code=XOR
        + """
from volumetric.train import Adam, train
result = train(net, x.tolist(), y.tolist(), epochs=300, optimiser=Adam(lr=0.05), loss="BCEWithLogitsLoss")
assert ((result.predict(x)[:, 0] > 0) == y).all()
""",
    ),
    Guess(
        peer="torch",
        code=XOR
        + """
from volumetric.train import Adam, train
result = train(net, x, y, epochs=20, optimiser=Adam, lr=0.05, scheduler="cosine", max_grad_norm=1.0)
assert result.history["loss"][-1] < result.history["loss"][0]
""",
    ),
    Guess(
        peer="torch",
        code=XOR
        + """
import os, tempfile
from volumetric.train import train
result = train(net, x > 0, y > 0, epochs=2)
path = os.path.join(tempfile.mkdtemp(), "xor")
result.save(path)
assert np.allclose(volumetric.load(path, device="reference").predict(x), result.predict(x), atol=1e-6)
""",
    ),
    Guess(
        peer="optax",
        code=XOR
        + """
from volumetric import initialise
from volumetric.train import train
params = initialise(net, seed=3)
result = train(net, params, (x, y), epochs=5, learning_rate=0.05, optimiser="sgd", weight_decay=1e-4)
assert result.params is not params and result.steps == 5
""",
    ),
    Guess(
        peer="lightning",
        code=XOR
        + """
from volumetric.train import train
result = train(net, x, y, max_epochs=4, accumulate_grad_batches=2, batch_size=1, gradient_clip_val=0.5)
assert (result.steps, result.reason) == (8, "epochs")
""",
    ),
    Guess(
        peer="scikit-learn",
        code=XOR
        + """
from volumetric.train import train
a, b = (train(net, X=x, y=y, epochs=2, random_state=7).predict(x) for _ in range(2))
assert (a == b).all()
""",
    ),
    Guess(
        peer="mlx",
        code=XOR
        + """
from volumetric.train import train
result = train(net, (x.astype("float16"), y.astype("uint8")), epochs=2, loss="l1")
assert "loss" in repr(result) and "<svg" in result._repr_html_()
""",
    ),
    Guess(
        peer="neat-python",
        code=XOR
        + """
def fitness(net):
    return 4 - sum((net.activate(a)[0] - b) ** 2 for a, b in zip(x, y))
champion = volumetric.evolution.evolve(fitness, inputs=2, outputs=1, pop_size=30, generations=3, seed=1)
assert champion.fitness == fitness(champion.champion) and len(champion.history) == 3
""",
    ),
    Guess(
        peer="neat-python",
        code=XOR
        + """
from volumetric.base.errors import SpecError
def eval_genomes(genomes, config):
    for _, genome in genomes:
        genome.fitness = 1
try:
    volumetric.evolution.evolve(eval_genomes, 2, 1)
except SpecError as error:
    answer = error.hint
assert "returns its fitness" in answer
""",
    ),
    Guess(
        peer="neat-python",
        code=XOR
        + """
def fitness(genome):
    genome.fitness = 1
try:
    volumetric.evolution.evolve(fitness, 2, 1, population_size=10)
except volumetric.VolumetricError as error:
    answer = error.hint
assert "return the fitness from the fitness function" in answer
""",
    ),
    Guess(
        peer="evosax",
        code=XOR
        + """
result = volumetric.evolution.evolve((x, y), popsize=150, num_generations=60, seed=1)
assert result.solved and (result.predict(x).round()[:, 0] == y).all()
""",
    ),
    Guess(
        peer="neat-python",
        code=XOR
        + """
result = volumetric.evolution.evolve("xor", generations=2, seed=1, recurrent=True, fitness_threshold=5, add_node=0.2)
assert result.champion.interface.recurrent and result.reason == "generations"
""",
    ),
    Guess(
        peer="lightning",
        code=XOR
        + """
runs = [volumetric.train(net, x, y, frozen=of) for of in ("0.0.0.0", (0, 0, 0, 0), [(0, 0, 0, 0)], "0.0.0.0/*")]
start = volumetric.initialise(net)
assert all((np.asarray(run.params["0.0.0.0/weight"]) == start["0.0.0.0/weight"].numpy()).all() for run in runs)
""",
    ),
]
