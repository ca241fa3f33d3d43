"""Mistakes in Python: losses, settings, predictions."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_python

MISTAKES = (
    in_python(
        "loss function of torch's order with numpy",
        "train(net, x, y, loss=lambda p, t: np.linalg.norm(p - t))",
        "numpy.norm | cannot be part of a loss | mean",
    ),
    in_python(
        "loss with an if",
        "train(net, x, y, loss=lambda p, t: p if p > t else t)",
        "a tensor | cannot be a condition | numpy.where",
    ),
    in_python("loss as a number", "train(net, x, y, loss=0.5)", "loss | got 0.5 | mse"),
    in_python("loss misspelled", 'train(net, x, y, loss="msee")', "loss | 'msee' | 'mse'"),
    in_python("optimiser misspelled", 'train(net, x, y, optimiser="adamw2")', "optimiser | 'adamw2' | 'adamw'"),
    in_python(
        "torch's optimiser of parameters",
        "train(net, x, y, optimiser=Adam(params, lr=0.1))",
        "Adam | no positional arguments | name them",
    ),
    in_python("rate below 0", "train(net, x, y, lr=-0.1)", "lr | got -0.1 | 0.001"),
    in_python(
        "rate of 0", "train(net, x, y, lr=0, epochs=3)", "learning rate | no weight changes | lr=0.001", warns=True
    ),
    in_python("epochs as text", 'train(net, x, y, epochs="10")', "epochs | got `str` | 10"),
    in_python("epochs as a float", "train(net, x, y, epochs=1.5)", "epochs | got `float` | a whole number"),
    in_python("batch of 0", "train(net, x, y, batch_size=0)", "batch_size | got 0 | batch_size=24"),
    in_python(
        "batch larger than the data with drop_last",
        "train(net, x, y, batch_size=64, drop_last=True)",
        "a batch of 64 | 24 samples | drop_last=False",
    ),
    in_python(
        "validation in percent", "train(net, x, y, validation=20)", "validation | 20 is not a fraction | validation=0.2"
    ),
    in_python(
        "validation too small", "train(net, x, y, validation=0.01)", "validation | leaves 0 of 24 | validation=0.2"
    ),
    in_python(
        "patience without validation",
        "train(net, x, y, patience=3)",
        "patience | needs validation data | validation = 0.1",
    ),
    in_python("metrics", 'train(net, x, y, metrics=["accuracy"])', "train | 'metrics' | accuracy=True"),
    in_python("device of torch", 'train(net, x, y, device="cuda:0")', "device | 'cuda:0' | gpu:0"),
    in_python("dtype of nobody", 'train(net, x, y, dtype="int7")', "dtype | 'int7' | int8"),
    in_python(
        "frozen of nothing",
        'train(net, x, y, frozen=["layer1.*"])',
        "'layer1.*' | no parameter matches | 0.0.0.0/weight",
    ),
    in_python(
        "weights of another network",
        "train(net, initialise(net3), (x, y))",
        "1.0.0.0/weight | has shape (3, 3) | initialise(network)",
    ),
    in_python(
        "result in place of weights",
        "predict(net, train(net, x, y), x)",
        "predict | got TrainResult | result.predict(inputs)",
    ),
    in_python(
        "arguments of predict turned around",
        "predict(net, x, params)",
        "predict | got ndarray | predict(network, params, inputs)",
    ),
    in_python(
        "one sample without a batch axis", "predict(net, params, x[0])", "the network reads | got shape (4,) | x[None]"
    ),
    in_python(
        "predict of another width", "predict(net, params, x[:, :2])", "the network reads | got shape (24, 2) | (n, 4)"
    ),
    in_python("predict of text", 'predict(net, params, "hello")', "inputs | got text | generate"),
    in_python(
        "checkpoints of another run",
        'train(net, x, y, checkpoints="points.csv")',
        "points.csv | cannot write | name a directory",
    ),
    in_python("schedule of torch", 'train(net, x, y, schedule="StepLR")', "schedule | 'StepLR' | 'step'"),
    in_python("callbacks", "train(net, x, y, callbacks=[print])", "train | 'callbacks' | reporters="),
    in_python("max_steps of 0", "train(net, x, y, max_steps=0)", "max_steps | got 0 | leave it out"),
    in_python("clip by value", 'train(net, x, y, clip="norm")', "clip | got `str` | a number"),
    in_python("seed of None", "train(net, x, y, seed=None)", "seed | got None | integer"),
)
