"""Mistakes in files for ``volumetric train``: networks, schedules, numeric types, clocks, places."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_train_file

MISTAKES = (
    in_train_file(
        "builder called otherwise",
        """[network]
builder = "mlp"
""",
        "[network] builder | 'mlp' | sequential",
    ),
    in_train_file(
        "builder with a capital",
        """[network]
builder = "Sequential"
""",
        "[network] builder | 'Sequential' | 'sequential'",
    ),
    in_train_file(
        "pictures' builder on rows",
        """[network]
builder = "cnn"
""",
        'builder "cnn" | reads pictures | sequential',
    ),
    in_train_file(
        "text's builder on rows",
        """[network]
builder = "transformer"
""",
        'builder "transformer" | reads tokens | text =',
    ),
    in_train_file(
        "layers in place of hidden",
        """[network]
options = { layers = [8, 8] }
""",
        "[network] builder | 'layers' | 'hidden'",
    ),
    in_train_file(
        "options beside the builder",
        """[network]
builder = "sequential"
hidden = [8]
""",
        "[network] | unknown key 'hidden' | options = { hidden",
    ),
    in_train_file(
        "hidden of 0",
        """[network]
options = { hidden = [0] }
""",
        "out_features | got 0 | at least 1",
    ),
    in_train_file(
        "activation with a capital",
        """[network]
options = { activation = "ReLU" }
""",
        "[network] builder | 'ReLU' | 'relu'",
    ),
    in_train_file(
        "activation of nobody",
        """[network]
options = { activation = "swishy" }
""",
        "[network] builder | 'swishy' | silu",
    ),
    in_train_file(
        "wrong number of inputs",
        """[network]
options = { inputs = 3, outputs = 1 }
""",
        "rows of shape [3] | samples have [2] | leave sizes",
    ),
    in_train_file(
        "wrong number of outputs",
        """[network]
options = { inputs = 2, outputs = 2 }
""",
        "output has shape (4, 2) | target (4, 1) | make the two equal",
    ),
    in_train_file(
        "two networks",
        """[network]
builder = "sequential"
model = "model"
""",
        "[network] | builder and model exclude each other | keep one",
    ),
    in_train_file(
        "model that is not there",
        """[network]
model = "modell"
""",
        "modell | no file or directory | 'model'",
    ),
    in_train_file(
        "folder that is no model",
        """[network]
model = "folder"
""",
        "folder | the directory is empty | safetensors",
    ),
    in_train_file(
        "picture as a network",
        """[network]
file = "picture.png"
""",
        "picture.png | is not JSON | network.json",
    ),
    in_train_file(
        "PyTorch file as a model",
        """[network]
model = "weights.pt"
""",
        "weights.pt | not one of torch.save | .safetensors",
    ),
    in_train_file(
        "patience without validation",
        """[train]
patience = 3
""",
        "patience | needs validation data | validation = 0.1",
    ),
    in_train_file(
        "schedule without steps",
        """[train]
schedule = "cosine"
""",
        "[train] schedule | steps must be given | steps =",
    ),
    in_train_file(
        "number type of nobody",
        """[train]
dtype = "int9"
""",
        "dtype | 'int9' | int8",
    ),
    in_train_file(
        "mode of nobody",
        """[train]
mode = "online"
""",
        "[train] mode | 'online' | systolic",
    ),
    in_train_file(
        "clocks without ticks",
        """[clocked]
clocks = { "0.0.0.0" = "every(2)" }
""",
        '[clocked] | is for modes | mode = "systolic"',
    ),
    in_train_file(
        "clock in words",
        """[train]
mode = "systolic"
[clocked]
clocks = { "0.0.0.0" = "every 2 ticks" }
""",
        "clocks.'0.0.0.0' | character 7 | every(4)",
    ),
    in_train_file("device of CUDA", 'device = "cuda"', "device | 'cuda' | gpu is what you mean"),
    in_train_file("device misspelled", 'device = "cpuu"', "device | 'cpuu' | 'cpu'"),
    in_train_file("seed as text", 'seed = "random"', "seed | got `str` | a whole number"),
    in_train_file("output is a file", 'output = "points.csv"', "points.csv | it is a file | --out"),
    in_train_file(
        "frozen names nothing",
        """[train]
frozen = ["layer1.*"]
""",
        "layer1.* | no parameter matches | 0.0.0.0/weight",
    ),
    in_train_file(
        "clip as text",
        """[train]
clip = "1"
""",
        "[train] clip | got `str` | 1",
    ),
    in_train_file(
        "clip below 0",
        """[train]
clip = -1.0
""",
        "clip | above 0, got -1.0 | clip = 1.0",
    ),
    in_train_file("key of evolution", "population = 100", "'population' | unknown key | volumetric evolve"),
    in_train_file(
        "checkpoint_every as true",
        """[train]
checkpoint_every = true
""",
        "checkpoint_every | got `bool` | a whole number",
    ),
    in_train_file(
        "softmax and cross entropy",
        """[data]
csv = "points.csv"
classes = true
[network]
options = { activation = "tanh", output_activation = "softmax" }
""",
        "[network] builder | 'softmax' | cross_entropy",
    ),
    in_train_file(
        "loss weights without losses",
        """[train]
loss_weights = { output = 1.0 }
""",
        "loss_weights | loss is not set | loss = {",
    ),
    in_train_file(
        "sequences wanted",
        """[data]
npz = "xy.npz"
[train]
mode = "systolic"
""",
        "[train] mode | clocked networks read sequences | waves",
    ),
    in_train_file(
        "a list of sections",
        """[[train]]
epochs = 1
""",
        "[train] | expected a table | single brackets",
    ),
    in_train_file(
        "target propagation of a plain key",
        """[train]
mode = { kind = "target", windows = 8 }
""",
        "[train] mode | 'windows' | 'window'",
    ),
)
