"""Guesses about layers, networks, weights and arrays.

The code runs with `numpy` as np, `volumetric`, and an array ``x`` of shape ``[4, 2]``; ``error(text)`` evaluates a text
that must fail with an error of ours, and returns message and hint.
"""

from __future__ import annotations

from tests.project.guesses.guess import Guess

_L = "from volumetric.layers import Conv2d, Dense, Dropout, Embedding, Flatten, GRU, LayerNorm, LSTM, MaxPool2d\n"
_L += "from volumetric.layers import BatchNorm2d, MultiHeadAttention, RMSNorm, Sequential, Softmax\n"
_N = _L + "from volumetric import Clocked, Coord, Link, Network, initialise, predict\n"

GUESSES = [
    Guess(
        peer="torch",
        code=_L
        + """
layer = Dense(2, 8, "tanh")
assert layer == Dense(in_features=2, out_features=8, activation="tanh")
""",
    ),
    Guess(peer="mlx", code=_L + 'assert Dense(16) == Dense(16, 16) and "as many" not in error("Dense()")'),
    Guess(peer="keras", code=_L + 'assert Dense(2, 8, activation=None) == Dense(2, 8, "linear") == Dense(2, 8)'),
    Guess(
        peer="torch",
        code=_L + 'assert Dense(2, 8, bias=False).bias is False\nassert "bias=False" in error("Dense(2, 8, False)")',
    ),
    Guess(
        peer="torch",
        code=_L
        + """
conv = Conv2d(1, 8, 3, 2, 1)
assert (conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding) == (1, 8, 3, 2, 1)
""",
    ),
    Guess(peer="torch", code=_L + "assert LSTM(8, 16).hidden_size == GRU(8, 16).hidden_size == 16"),
    Guess(peer="torch", code=_L + "assert Embedding(100, 8).embedding_dim == 8"),
    Guess(peer="torch", code=_L + "assert LayerNorm(64).num_features == RMSNorm(64).num_features == 64"),
    Guess(peer="torch", code=_L + "assert Dropout(0.1).p == 0.1 and MaxPool2d(2, 2).stride == 2"),
    Guess(peer="mlx", code=_L + "assert MultiHeadAttention(64, 4).num_heads == 4"),
    Guess(peer="torch", code=_L + "assert Softmax(-1).axis == -1 and Flatten(1).start_dim == 1"),
    Guess(peer="torch", code=_L + "assert len(Sequential([Dense(2, 8), Dense(8, 1)]).layers) == 2"),
    Guess(peer="torch", code=_L + 'assert "Sequential([…])" in error("Sequential(Dense(2, 8), Dense(8, 1))")'),
    Guess(peer="keras", code=_L + 'assert "\'out_features\'" in error("Dense(2, units=8)")'),
    Guess(
        peer="keras", code=_L + 'assert "\'out_channels\'" in error("Conv2d(filters=8, in_channels=1, kernel_size=3)")'
    ),
    Guess(peer="keras", code=_L + 'assert "\'hidden_size\'" in error("LSTM(2, units=8)")'),
    Guess(peer="keras", code=_L + 'assert "\'p\'" in error("Dropout(rate=0.1)")'),
    Guess(peer="equinox", code=_L + 'assert "\'num_embeddings\'" in error("Embedding(vocab_size=9, embedding_dim=4)")'),
    Guess(peer="mlx", code=_L + 'assert "\'num_features\'" in error("LayerNorm(dims=8)")'),
    Guess(peer="torch", code=_L + 'assert "\'axis\'" in error("Softmax(dim=-1)")'),
    Guess(peer="keras", code=_L + 'assert "\'eps\'" in error("LayerNorm(8, epsilon=1e-3)")'),
    Guess(peer="torch", code=_L + 'assert "\'num_heads\'" in error("MultiHeadAttention(8, heads=2)")'),
    Guess(peer="torch", code=_L + 'assert "one layer each" in error("LSTM(2, 3, num_layers=2)")'),
    Guess(
        peer="torch",
        code=_L
        + "assert \"'relu'\" in error(\"Dense(2, 8, 'ReLU')\") and \"'silu'\" in error(\"Dense(2, 8, 'swish')\")",
    ),
    Guess(peer="equinox", code=_L + 'assert \'"tanh"\' in error("Dense(2, 8, np.tanh)")'),
    Guess(
        peer="equinox",
        code=_N
        + """
network = volumetric.sequential(2, 8, 8, 1, activation="tanh")
assert [layer.activation for layer in network] == ["tanh", "tanh", "linear"]
""",
    ),
    Guess(
        peer="keras",
        code=_N
        + """
network = volumetric.sequential([Dense(2, 8, "relu"), Dense(8, 1)])
assert network == volumetric.sequential(2, 8, 1) == volumetric.sequential(2, Dense(2, 8, "relu"), 1)
assert predict(network, initialise(network), x, device="reference").shape == (4, 1)
""",
    ),
    Guess(
        peer="torch",
        code=_N
        + """
network = volumetric.sequential((1, 8, 8), Conv2d(1, 4, 3, activation="relu"), MaxPool2d(2), Flatten(), 10)
assert predict(network, initialise(network), np.zeros((5, 1, 8, 8)), device="reference").shape == (5, 10)
""",
    ),
    Guess(
        peer="neat-python",
        code=_N
        + """
network = volumetric.cube(4, 4, 4, Dense(16), neighbours=6)
assert len(network) == 64 and Clocked(network).network is network
assert "'neighbours'" in error("volumetric.cube(4, 4, 4, Dense(16), neighbors=6)")
""",
    ),
    Guess(
        peer="keras",
        code=_N
        + """
network = volumetric.sequential(2, 8, 1, activation="tanh")
text, page = str(network), network._repr_html_()
assert "0.0.0.0  dense, tanh  [T, 2] → [T, 8]          24" in text and "total: 33 parameters" in text
assert "<script" not in page and "<table>" in page and "\\n" not in repr(network)
assert "float32" in str(network.summary(initialise(network)))
""",
    ),
    Guess(
        peer="torch",
        code=_N
        + """
params = initialise(volumetric.sequential(2, 8, 1))
weight = params["0.0.0.0/weight"]
assert weight.shape == (8, 2) and weight.dtype == "float32" and np.asarray(weight).dtype == np.float32
assert np.array_equal(weight[0], weight.numpy()[0]) and (weight * 2 - weight - weight == 0).all()
assert (x @ np.asarray(weight).T).shape == (4, 8) and "8×2 float32" in repr(weight)
assert "0.0.0.0/weight  8×2" in str(params)
""",
    ),
    Guess(
        peer="torch",
        code=_N
        + """
params = initialise(volumetric.sequential(2, 8, 1))
assert "did you mean '0.0.0.0/weight'" in error("params['0.0.0.0/wieght']", params=params)
assert params[(0, 0, 0, 0), "weight"] is params["0.0.0.0/weight"] and params.get("no") is None
""",
    ),
    Guess(
        peer="numpy",
        code=_N
        + """
network = Network({(0, 0, 0, 0): Dense(2, 2), "1.0.0.0": Dense(2), 2: Dense(2)}, input_shape=2, disabled=[(1, 0, 0, 0)])
assert network[1] is network["1.0.0.0"] is network[1, 0, 0, 0] and network.input_dtype == "float32"
assert network.disabled == {Coord(1)}
assert Network([Dense(2)], input_shape=(2,), outputs={"h": 0}).outputs["h"] == Coord(0)
""",
    ),
    Guess(
        peer="networkx",
        code=_N
        + """
link = Link((0, 0, 0, 0), "2.0.0.0", combine="add")
assert link == Link(kind="activation", source=Coord(0), target=Coord(2), combine="add")
""",
    ),
    Guess(
        peer="numpy",
        code=_N
        + """
machine = Clocked(volumetric.sequential(2, 8, 1), clocks={(0, 0, 0, 0): "every(2)"})
assert str(machine.clocks[Coord(0)]) == "every(2)" and "every(2)" in str(machine)
""",
    ),
    Guess(
        peer="numpy",
        code=_N
        + """
network = volumetric.sequential(2, 3)
params = initialise(network)
inputs = (x, x.astype(float), x.astype(int), x.tolist(), x > 0)
outputs = [predict(network, params, one, device="reference") for one in inputs]
assert all(np.array_equal(outputs[0], other) for other in outputs)
huge = np.array([[2**24 + 1, 0]])
message = error("predict(network, params, huge)", network=network, params=params, huge=huge, predict=predict)
assert "cannot hold 16777217" in message
""",
    ),
    Guess(
        peer="numpy",
        code=_N
        + """
network = volumetric.sequential(Embedding(9, 4), 2)
params = initialise(network)
rows = predict(network, params, np.array([[1.0, 2.0]]), device="reference")
assert np.array_equal(rows, predict(network, params, [[1, 2]], device="reference"))
""",
    ),
    Guess(
        peer="torch",
        code=_N
        + """
network = volumetric.sequential(2, 1)
assert "predict(network, params, x)" in error("network(x)", network=network)
assert "initialise(network)" in error("network.parameters()", network=network)
assert "with_layer" in error("network.add(Dense(2))", network=network)
""",
    ),
    Guess(
        peer="keras",
        code=_N
        + """
from volumetric.loaders.native_checkpoint import save_native
network = volumetric.sequential(2, 3)
params = initialise(network)
save_native("model", network, params)
with volumetric.load("model", device="reference") as model:
    assert np.allclose(model(x), predict(network, params, x, device="reference"))
    assert "dense" in str(model) and "\\n" not in repr(model)
""",
    ),
    Guess(
        peer="mlx",
        code=_N
        + """
network = volumetric.sequential(64, 8)
params = initialise(network)
network.morph(params, {(0, 0, 0, 0): "int4"})
assert params["0.0.0.0/weight"].dtype == "int4:g32" and params["0.0.0.0/weight"].numpy().dtype == np.float32
""",
    ),
    Guess(
        peer="dataclasses",
        code=_N
        + """
import dataclasses, pickle
layer = Dense(2, 8)
assert dataclasses.replace(layer, activation=None) == layer and hash(Dense(2, 8)) == hash(layer)
network = volumetric.sequential(2, layer, 1)
assert Network.from_json(network.to_json()) == network == dataclasses.replace(network)
""",
    ),
    Guess(
        peer="torch",
        code="""
import pytest
answers = {"layers import Linear": "Dense", "layers import ReLU": "argument", "layers import Densee": "Dense"}
for line, answer in {**answers, "layers import MultiheadAttention": "MultiHeadAttention"}.items():
    with pytest.raises(ImportError) as caught:
        exec(f"from volumetric.{line}")
    assert answer in caught.value.hint
with pytest.raises(ImportError) as caught:
    from volumetric import nn
assert not hasattr(volumetric.layers, "Linear") and "volumetric.layers" in caught.value.hint
""",
    ),
    Guess(
        peer="equinox",
        code=_N
        + """
net = volumetric.sequential(2, 8, 1)
params = initialise(net)
halved = {**params, "0.0.0.0/weight": params["0.0.0.0/weight"] * 0.5}
assert predict(net, halved, x, device="reference").shape == (4, 1)
""",
    ),
]
