"""Mistakes in files for ``volumetric train``: samples."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_train_file

MISTAKES = (
    in_train_file(
        "no such table file",
        """[data]
csv = "point.csv"
""",
        "point.csv | No such file | 'points.csv'",
    ),
    in_train_file(
        "file under another key",
        """[data]
file = "points.csv"
""",
        "[data] | unknown key 'file' | csv =",
    ),
    in_train_file(
        "folder as a table",
        """[data]
csv = "folder"
""",
        "folder | Is a directory | name a file",
    ),
    in_train_file(
        "arrays as a table",
        """[data]
csv = "xy.npz"
""",
        'xy.npz | not a CSV file | npz = "xy.npz"',
    ),
    in_train_file(
        "table as arrays",
        """[data]
npz = "points.csv"
""",
        'points.csv | not an .npz file | csv = "points.csv"',
    ),
    in_train_file(
        "npy as npz",
        """[data]
npz = "rows.npy"
""",
        "rows.npy | not an .npz file | numpy.savez",
    ),
    in_train_file(
        "target column misspelled",
        """[data]
csv = "points.csv"
columns = ["lable"]
classes = true
""",
        "points.csv | no column 'lable' | 'label'",
    ),
    in_train_file(
        "target column as text",
        """[data]
csv = "points.csv"
columns = "label"
classes = true
""",
        '[data].columns | got `str` | ["label"]',
    ),
    in_train_file(
        "target under another key",
        """[data]
csv = "points.csv"
target = "label"
""",
        "[data] | unknown key 'target' | columns =",
    ),
    in_train_file(
        "empty cell",
        """[data]
csv = "gaps.csv"
""",
        "gaps.csv: line 7, column 'y' | the cell is empty | remove the line",
    ),
    in_train_file(
        "values separated by spaces",
        """[data]
csv = "spaces.csv"
""",
        "spaces.csv | x y target | separate values by commas",
    ),
    in_train_file(
        "marks of thousands",
        """[data]
csv = "thousands.csv"
""",
        "thousands.csv: line 2 | '0.000,5' is not a number | no marks of thousands",
    ),
    in_train_file(
        "lines of different length",
        """[data]
csv = "ragged.csv"
""",
        "ragged.csv: line 3 | 2 values | complete the line",
    ),
    in_train_file(
        "a column of names among the inputs",
        """[data]
csv = "names.csv"
""",
        "column 'name' | is not a number | remove the column",
    ),
    in_train_file(
        "two columns of one name",
        """[data]
csv = "twice.csv"
""",
        "twice.csv | two columns 'x' | unique name",
    ),
    in_train_file(
        "table without rows",
        """[data]
csv = "only_header.csv"
""",
        "only_header.csv | no samples | a line for each sample",
    ),
    in_train_file(
        "empty table",
        """[data]
csv = "empty.csv"
""",
        "empty.csv | no samples | a line for each sample",
    ),
    in_train_file(
        "classes without classes = true",
        """[data]
csv = "binary.csv"
[train]
accuracy = true
""",
        "accuracy | has no classes | classes = true",
        warns=True,
        slow=True,
    ),
    in_train_file(
        "table without a header, classes by name of column",
        """[data]
csv = "rows.csv"
columns = ["label"]
""",
        "rows.csv | no column 'label' | '1'",
    ),
    in_train_file(
        "inputs of a size of a million",
        """[data]
csv = "large.csv"
[train]
epochs = 20
optimiser = { kind = "sgd", lr = 0.01 }
""",
        "step | data have numbers up to | standardise = true",
        started=True,
        slow=True,
    ),
    in_train_file(
        "text shorter than its windows",
        """[data]
text = "short.txt"
""",
        "windows of 64 tokens | the text has 5 | length =",
    ),
    in_train_file(
        "picture as text",
        """[data]
text = "picture.png"
""",
        "picture.png | is not text | name a text file",
    ),
    in_train_file(
        "validation in percent",
        """[data]
validation = 20
""",
        "validation | got 20.0 | validation = 0.2",
    ),
    in_train_file(
        "validation as text percent",
        """[data]
validation = "20%"
""",
        "[data] validation | got '20%' | validation = 0.2",
    ),
    in_train_file(
        "validation file missing",
        """[data]
csv = "points.csv"
classes = true
validation = "test.csv"
""",
        "test.csv | No such file | did you mean",
    ),
    in_train_file(
        "two sources",
        """[data]
csv = "points.csv"
npz = "xy.npz"
""",
        "[data] | npz and csv exclude each other | keep one",
    ),
    in_train_file(
        "arrays of other names",
        """[data]
npz = "torch_names.npz"
""",
        "torch_names.npz | no array 'inputs' | set inputs = \"X\"",
    ),
    in_train_file(
        "array name misspelled",
        """[data]
npz = "torch_names.npz"
inputs = "x"
targets = "y"
""",
        "torch_names.npz | no array 'x' | did you mean 'X'",
    ),
    in_train_file(
        "inputs and targets of different length",
        """[data]
npz = "lengths.npz"
""",
        "targets | inputs 16, targets 9 | one row of targets for each row",
    ),
    in_train_file(
        "texts as inputs",
        """[data]
npz = "texts.npz"
""",
        "inputs | got text | astype",
    ),
    in_train_file(
        "targets of NaN",
        """[data]
npz = "nan.npz"
""",
        "targets[0, 0] | is nan | remove these samples",
        started=True,
    ),
    in_train_file(
        "batch of 0",
        """[data]
batch_size = 0
""",
        "[data]: batch_size | at least 1, got 0 | 32",
    ),
    in_train_file(
        "batch in [train]",
        """[train]
batch_size = 8
""",
        "[train] | unknown key 'batch_size' | [data] batch_size",
    ),
    in_train_file(
        "problem misspelled",
        """[data]
problem = "spiral"
""",
        "[data] problem | 'spiral' | 'spirals'",
    ),
)
