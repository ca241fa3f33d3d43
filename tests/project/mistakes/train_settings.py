"""Mistakes in files for ``volumetric train``: sections, settings, losses, the language TOML."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_train_file

MISTAKES = (
    in_train_file(
        "section misspelled",
        """[trian]
epochs = 1
""",
        "trian | unknown key | did you mean 'train'",
    ),
    in_train_file(
        "section of training called otherwise",
        """[training]
epochs = 1
""",
        "training | unknown key | did you mean 'train'",
    ),
    in_train_file(
        "section of the network called otherwise",
        """[model]
hidden = [8]
""",
        "'model' | unknown key | [network]",
    ),
    in_train_file(
        "section of the optimiser",
        """[optimizer]
lr = 0.1
""",
        "'optimizer' | unknown key | [train] optimiser",
    ),
    in_train_file(
        "rate in [train]",
        """[train]
lr = 0.01
""",
        "[train] | unknown key 'lr' | optimiser = { kind = \"adam\", lr = 0.01 }",
    ),
    in_train_file(
        "epochs as text",
        """[train]
epochs = "10"
""",
        "[train] epochs | got `str` | without quotes: 10",
    ),
    in_train_file("epochs at the top", "epochs = 10", "'epochs' | unknown key | write it in [train]"),
    in_train_file(
        "epochs as 1e3",
        """[train]
epochs = 1e3
""",
        "[train] epochs | got `float` | 1000",
    ),
    in_train_file(
        "epochs below 0",
        """[train]
epochs = -1
""",
        "[train] epochs | at least 1, got -1 | leave it out",
    ),
    in_train_file(
        "American spelling",
        """[train]
optimizer = "adam"
""",
        "[train] | unknown key 'optimizer' | 'optimiser'",
    ),
    in_train_file(
        "optimiser misspelled",
        """[train]
optimiser = "adamm"
""",
        "[train] optimiser | unknown kind 'adamm' | 'adam'",
    ),
    in_train_file(
        "rate of the optimiser called otherwise",
        """[train]
optimiser = { kind = "adam", learning_rate = 0.1 }
""",
        "[train] optimiser | 'learning_rate' | 'lr'",
    ),
    in_train_file(
        "optimiser with a name in place of a kind",
        """[train]
optimiser = { name = "adam" }
""",
        "[train] optimiser | expected a name or a table with a kind | adam",
    ),
    in_train_file(
        "rate as text",
        """[train]
optimiser = { kind = "adam", lr = "0.1" }
""",
        "optimiser.lr | got `str` | 0.1",
    ),
    in_train_file(
        "rate of 100",
        """[network]
options = { hidden = [8], activation = "relu" }
[train]
epochs = 30
optimiser = { kind = "sgd", lr = 100.0 }
""",
        "step | learning rate is 100 | lower the learning rate",
        started=True,
        slow=True,
    ),
    in_train_file(
        "rate below 0",
        """[train]
optimiser = { kind = "adam", lr = -0.1 }
""",
        "adam: lr | must be 0.0 or more, got -0.1 | 0.001",
    ),
    in_train_file(
        "torch's name of a loss",
        """[train]
loss = "BCELoss"
""",
        "[train] loss | 'BCELoss' | \"bce\"",
    ),
    in_train_file(
        "loss misspelled",
        """[train]
loss = "crossentropy"
""",
        "cross_entropy | with one class the loss is always 0 | bce",
    ),
    in_train_file(
        "loss of nobody",
        """[train]
loss = "accuracy"
""",
        "[train] loss | 'accuracy' | cross_entropy",
    ),
    in_train_file(
        "classes and one output",
        """[data]
csv = "binary.csv"
[train]
loss = "cross_entropy"
""",
        "cross_entropy | with one class the loss is always 0 | bce",
    ),
    in_train_file(
        "classes as numbers in a table of names",
        """[data]
csv = "points.csv"
""",
        "points.csv: line 2, column 'label' | is not a number | classes = true",
    ),
    in_train_file(
        "own loss without a function",
        """[train]
loss = "my_losses"
""",
        'loss | names a file and no function | "my_losses:function"',
    ),
    in_train_file(
        "own loss of a function that is not there",
        """[train]
loss = "my_losses:ratios"
""",
        "my_losses.py | has no 'ratios' | 'ratio'",
    ),
    in_train_file(
        "own loss of a missing module",
        """[train]
loss = "losses:ratio"
""",
        "losses:ratio | no module named | looked for losses.py",
    ),
    in_train_file(
        "own loss that is a number",
        """[train]
loss = "my_losses:rate"
""",
        "my_losses:rate | must be a function, got int | name a function",
    ),
    in_train_file(
        "own loss of three arguments",
        """[train]
loss = "my_losses:three"
""",
        "loss three | returned a  | def loss(prediction, target)",
    ),
    in_train_file(
        "own loss that returns nothing",
        """[train]
loss = "my_losses:forgets"
""",
        "loss forgets | returned None | return the terms",
    ),
    in_train_file(
        "own loss in a module with a slip",
        """[train]
loss = "broken_module:f"
""",
        "broken_module | SyntaxError | run the module",
    ),
    in_train_file(
        "own loss that needs a missing library",
        """[train]
loss = "needs:f"
""",
        "needs:f | which is not installed | install a_library_that_nobody_has",
    ),
    in_train_file(
        "no quotes",
        """[network]
options = { activation = relu }
""",
        "line 2 | not valid TOML | text in quotes",
    ),
    in_train_file(
        "capital True",
        """[data]
standardise = True
""",
        "line 2 | not valid TOML | small letters",
    ),
    in_train_file(
        "a dict of Python",
        """[network]
options = { "hidden": [8] }
""",
        "line 2 | not valid TOML | { key = value }",
    ),
    in_train_file(
        "section twice",
        """[train]
epochs = 1
[train]
loss = "mse"
""",
        "line 3 | twice | written once",
    ),
    in_train_file(
        "key twice",
        """[train]
epochs = 1
epochs = 2
""",
        "line 3 | not valid TOML | remove one",
    ),
    in_train_file(
        "None",
        """[train]
clip = None
""",
        "line 2 | not valid TOML | leave the key out",
    ),
    in_train_file(
        "Windows path",
        """[data]
csv = "C:\\Users\\me\\data.csv"
""",
        "line 2 | not valid TOML | backslash",
    ),
    in_train_file(
        "Windows path whose backslashes are escapes",
        """[data]
csv = "C:\\new\\table.csv"
""",
        "cannot read | No such file | single quotes",
    ),
    in_train_file(
        "table in two lines",
        """[network]
options = {
  hidden = [8],
}
""",
        "line 2 | not valid TOML | on one line",
    ),
    in_train_file(
        "colon in place of the equals sign",
        """[train]
epochs: 3
""",
        "line 2 | not valid TOML | in place of the colon",
    ),
)
