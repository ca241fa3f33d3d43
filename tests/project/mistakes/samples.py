"""Mistakes in Python: samples, targets, and outputs that do not fit their loss."""

# ruff: noqa: E501 (what somebody types on one line)
from __future__ import annotations

from tests.project.mistakes.mistake import in_python

MISTAKES = (
    in_python("train of a missing target", "train(net, x)", "train | needs y | train(network, x, y"),
    in_python(
        "target with classes in a column for one output",
        'train(net, x, labels, loss="cross_entropy")',
        "cross_entropy | with one class the loss is always 0 | bce",
    ),
    in_python(
        "ids above the classes",
        'train(net3, x, labels + 1, loss="cross_entropy")',
        "[1] | class id 3 | count ids from 0",
    ),
    in_python("ids below 0", 'train(net3, x, labels - 1, loss="cross_entropy")', "[7] | class id -1 | -100"),
    in_python(
        "names as targets",
        'train(net3, x, np.array(["cat", "dog", "cat"] * 8), loss="cross_entropy")',
        "targets | got text | numpy.unique",
    ),
    in_python(
        "one-hot targets of another width",
        'train(net3, x, np.eye(2, dtype=np.float32)[labels % 2], loss="cross_entropy")',
        "cross_entropy | shape (24, 2) | make the two equal",
    ),
    in_python(
        "targets of another length", "train(net, x, y[:20])", "targets 20 | same number of samples | one row of targets"
    ),
    in_python("targets of another width", "train(net, x, x[:, :2])", "mse | target (24, 2) | make the two equal"),
    in_python("inputs transposed", "train(net, x.T, y)", "inputs 4 | same number of samples | one row of targets"),
    in_python(
        "inputs of another width",
        "train(net, x[:, :3], y)",
        "an array of shape (24, 3) | reads float32 [T, 4] | 3 features",
    ),
    in_python(
        "NaN in inputs", "train(net, np.where(x > 1, np.nan, x), y)", "inputs[1, 2] | is nan | remove these samples"
    ),
    in_python("text in inputs", "train(net, x.astype(str), y)", "inputs | got text | astype"),
    in_python(
        "objects in inputs", "train(net, np.array([[1, None, 2, 3]] * 24), y)", "inputs | got Python objects | astype"
    ),
    in_python("ragged lists", "train(net, [[1, 2, 3, 4], [1, 2]], [1, 2])", "inputs | unequal lengths | pad"),
    in_python("no samples", "train(net, x[:0], y[:0])", "inputs 0 | no samples | at least one"),
    in_python(
        "bits for bce outside", 'train(net, x, labels * 5.0, loss="bce")', "bce: targets | got 0.0 to 10.0 | mse"
    ),
    in_python(
        "pixels from 0 to 255 and a large rate",
        'train(net, np.abs(x) * 2e5, y, epochs=9, optimiser="sgd", lr=0.1)',
        "inputs | numbers up to | scale them",
        warns=True,
    ),
    in_python(
        "rate of 100",
        'train(sequential(4, 1, hidden=(8,), activation="relu"), x, y, epochs=40, optimiser="sgd", lr=100.0)',
        "step 4 | learning rate is 100 | lr=10",
    ),
    in_python(
        "softmax twice",
        'n = Network(layers=[Dense(in_features=4, out_features=3), volumetric.layers.Softmax()], input_shape=(4,), input_dtype="float32"); train(n, x, labels, loss="cross_entropy")',
        "layer at 1.0.0.0 | softmax is applied twice | remove that layer",
        warns=True,
    ),
    in_python(
        "sigmoid twice",
        'train(sequential(4, 1, output_activation="sigmoid"), x, labels > 0, loss="bce")',
        "layer at 0.0.0.0 | ends with sigmoid | logits=False",
        warns=True,
    ),
    in_python(
        "relu at the end of classes",
        'train(sequential(4, 3, output_activation="relu"), x, labels, loss="cross_entropy")',
        'layer at 0.0.0.0 | ends with relu | activation="linear"',
        warns=True,
    ),
    in_python(
        "accuracy of a regression",
        "train(net, x, y, accuracy=True)",
        "accuracy | has no classes | cross_entropy",
        warns=True,
    ),
)
