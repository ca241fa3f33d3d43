"""Mistakes in Python: layers, links, networks, weights."""

# ruff: noqa: E501 (what somebody types on one line)
from __future__ import annotations

from tests.project.mistakes.mistake import in_python

MISTAKES = (
    in_python(
        "layers that do not fit",
        'Network(layers=[Dense(in_features=4, out_features=8), Dense(in_features=16, out_features=1)], input_shape=(4,), input_dtype="float32")',
        "1.0.0.0 | 16 features, got shape [T, 8] | this layer for 8 features",
    ),
    in_python("a class in place of a layer", "Network(layers=[Dense])", "0.0.0.0 | expected a layer | Dense(…)"),
    in_python(
        "text in place of a layer",
        'Network(layers=["dense"])',
        "0.0.0.0 | expected a layer, got 'dense' | Dense(in_features=",
    ),
    in_python("torch's Linear", "volumetric.layers.Linear(4, 8)", "volumetric.layers | 'Linear' | 'Dense'"),
    in_python("layer name misspelled", "volumetric.layers.Dnse", "volumetric.layers | 'Dnse' | 'Dense'"),
    in_python(
        "activation in capitals",
        'Dense(in_features=4, out_features=8, activation="ReLU")',
        "activation | 'ReLU' | 'relu'",
    ),
    in_python(
        "activation as a function",
        "Dense(in_features=4, out_features=8, activation=np.tanh)",
        'activation | expected a name | "tanh"',
    ),
    in_python(
        "activation misspelled",
        'Dense(in_features=4, out_features=8, activation="sigmod")',
        "activation | 'sigmod' | 'sigmoid'",
    ),
    in_python("width of 0", "Dense(in_features=0, out_features=8)", "in_features | got 0 | at least 1"),
    in_python("width below 0", "Dense(in_features=4, out_features=-8)", "out_features | got -8 | at least 1"),
    in_python("width of a half", "Dense(in_features=4, out_features=7 / 2)", "out_features | got 3.5 | at least 1"),
    in_python("width as text", 'Dense(in_features="4", out_features=8)', "in_features | got '4' | without quotes"),
    in_python("units", "Dense(in_features=4, units=8)", "Dense | 'units' | 'out_features'"),
    in_python("bias as text", 'Dense(in_features=4, out_features=8, bias="no")', "dense: bias | got 'no' | bias=False"),
    in_python(
        "picture without channels",
        'Network(layers=[Conv2d(in_channels=1, out_channels=4, kernel_size=3)], input_shape=(28, 28), input_dtype="float32")',
        "conv2d at 0.0.0.0 | got shape [T, 28, 28] | channels come first",
    ),
    in_python(
        "channels last",
        'Network(layers=[Conv2d(in_channels=1, out_channels=4, kernel_size=3)], input_shape=(28, 28, 1), input_dtype="float32")',
        "conv2d at 0.0.0.0 | got shape [T, 28, 28, 1] | channels come first",
    ),
    in_python(
        "kernel larger than the picture",
        'Network(layers=[Conv2d(in_channels=1, out_channels=4, kernel_size=9)], input_shape=(1, 4, 4), input_dtype="float32")',
        "conv2d at 0.0.0.0 | a kernel that spans [9, 9] | padding=1",
    ),
    in_python(
        "kernel_size",
        "Conv2d(in_channels=1, out_channels=4, kernel_size=(3, 3), pading=1)",
        "Conv2d | 'pading' | 'padding'",
    ),
    in_python(
        "dense after pictures without flatten",
        'Network(layers=[Conv2d(in_channels=1, out_channels=4, kernel_size=3), Dense(in_features=4, out_features=2)], input_shape=(1, 8, 8), input_dtype="float32")',
        "dense at 1.0.0.0 | 4 features, got shape [T, 4, 6, 6] | this layer for 6",
    ),
    in_python(
        "no shape of the input",
        "Network(layers=[Dense(in_features=4, out_features=2)])",
        "dense at 0.0.0.0 | got shape [T] | input_shape=(4,)",
    ),
    in_python(
        "input dtype of nobody",
        'Network(layers=[Dense(in_features=4, out_features=2)], input_shape=(4,), input_dtype="float")',
        "input | unknown dtype 'float' | \"float32\"",
    ),
    in_python(
        "heads that do not divide",
        "volumetric.layers.MultiHeadAttention(embed_dim=10, num_heads=3)",
        "embed_dim 10 | 3 heads | multiple of num_heads",
    ),
    in_python(
        "id above the vocabulary",
        "n = Network(layers=[Embedding(num_embeddings=10, embedding_dim=4)]); predict(n, initialise(n), np.array([[3, 12]]))",
        "position 1 | token id 12 | tokenizer",
    ),
    in_python(
        "floats as ids",
        "n = Network(layers=[Embedding(num_embeddings=10, embedding_dim=4)]); predict(n, initialise(n), np.array([[0.5, 1.0]]))",
        "the network reads int32 | got float64 | astype(int)",
    ),
    in_python(
        "coordinate outside of the grid",
        'Network(grid=Grid(2), layers={(0, 0, 0, 5): Dense(in_features=4, out_features=2)}, input_shape=(4,), input_dtype="float32")',
        "0.0.0.5 | outside of the grid 2×1×1×1 | count from 0",
    ),
    in_python(
        "coordinate below 0",
        "Network(layers={(-1,): Dense(in_features=4, out_features=2)}, input_shape=(4,))",
        "(-1,) | is not a coordinate | (1, 0, 0, 2)",
    ),
    in_python(
        "coordinate as text with commas",
        'Network(layers={"0,0,0,0": Dense(in_features=4, out_features=2)}, input_shape=(4,), input_dtype="float32")',
        "'0,0,0,0' | is not a coordinate | \"1.0.0.2\"",
    ),
    in_python(
        "link to nowhere",
        'Network(layers=[Dense(in_features=4, out_features=4)], links=(Link(kind="activation", source=(0,), target=(3,)),), input_shape=(4,), input_dtype="float32")',
        "3.0.0.0 | outside of the grid | count from 0",
    ),
    in_python(
        "link of a kind of nobody", 'Link(kind="skip", source=(0,), target=(1,))', "link kind | 'skip' | \"activation\""
    ),
    in_python(
        "link of a combine of nobody",
        'Link(kind="activation", source=(0,), target=(1,), combine="sum")',
        "link combine | 'sum' | \"add\"",
    ),
    in_python(
        "link of other width",
        'Network(layers=[Dense(in_features=4, out_features=8), Dense(in_features=8, out_features=8)], links=(Link(kind="activation", source=(0,), target=(1,), combine="add"), Link(kind="activation", source=(0,), target=(0,), delay=1)), input_shape=(4,), input_dtype="float32")',
        "dense at 0.0.0.0 | 4 features, got shape [T, 8] | make the widths",
    ),
    in_python(
        "delay below 0",
        'Link(kind="activation", source=(0,), target=(1,), delay=-1)',
        "link 0.0.0.0 → 1.0.0.0 | got -1 | delay=1",
    ),
    in_python(
        "a tuple in place of a link",
        'Network(layers=[Dense(in_features=4, out_features=4)], links=[((0,), (0,))], input_shape=(4,), input_dtype="float32")',
        "links | expected a Link | Link(",
    ),
    in_python(
        "the network changed in place", "net.layers = {}", "'layers' | Network is immutable | dataclasses.replace"
    ),
    in_python(
        "a layer changed in place",
        "net.layers[Coord(0)].out_features = 9",
        "'out_features' | Dense is immutable | dataclasses.replace",
    ),
    in_python(
        "parameters changed in place", 'params["0.0.0.0/weight"][0, 0] = 1.0', "weight | not changed in place | assign"
    ),
    in_python(
        "parameter name misspelled",
        'params["0.0.0.0/weights"]',
        "'0.0.0.0/weights' | there is no weight | '0.0.0.0/weight'",
    ),
    in_python("parameter name of torch", 'params["0.weight"]', "'0.weight' | there is no weight | '0.0.0.0/weight'"),
    in_python("hidden as a string in sequential", 'sequential(4, 1, hidden="8,8")', "sequential | got '8' | a shape"),
    in_python(
        "sequential without an output", "sequential(4)", "sequential | the layers are missing | sequential(2, 8, 1)"
    ),
    in_python(
        "sequential called with a list",
        "sequential([4, 8, 1])",
        "sequential | the layers are missing | sequential(2, 8, 1)",
    ),
    in_python("cnn of a flat shape", "cnn(784, 10)", "cnn: shape | got 784 | cnn((1, 28, 28), outputs)"),
    in_python("transformer without sizes", "transformer()", "transformer | needs vocabulary | transformer(vocabulary"),
    in_python("initialise with a number as text", 'initialise(net, seed="42")', "seed | got '42' | seed=1"),
    in_python("layers called as in torch", "net(x)", "a network | is not called | predict(network, params, x)"),
    in_python("fit as in keras", "net.fit(x, y)", "'Network' | no attribute 'fit' | train(network, x, y)"),
)
