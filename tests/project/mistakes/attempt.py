"""Make a mistake in a folder of files, and return what the package answers."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import shlex
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.project.mistakes.mistake import Mistake
from volumetric.base.errors import VolumetricError
from volumetric.cli import main

PRELUDE = """
import numpy as np
import volumetric
from volumetric import *
from volumetric import Clocked, Coord, Every, Grid, Link, Network, Port, initialise, load, open_device, predict
from volumetric import builders, evolution, fabric, program
from volumetric.builders import cnn, sequential, stack, transformer
from volumetric.evolution import EvolutionConfig, Genome, Population, evolve
from volumetric.evolution.problems import Gym, Table
from volumetric.generate import SamplingParams
from volumetric.layers import *
from volumetric.layers import LSTM, Dense, Embedding
from volumetric.train import *
from volumetric.train import Adam, ArrayData, Cosine, CrossEntropy, TrainConfig, train

rng = np.random.default_rng(0)
x = rng.standard_normal((24, 4)).astype(np.float32)
y = x[:, :1] * 0.5
labels = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
net = sequential(4, 1, hidden=(3,), activation="tanh")
net3 = sequential(4, 3, hidden=(3,), activation="tanh")
params = initialise(net)
"""
"""Names that the code of mistakes uses."""

FILES: Mapping[str, str | bytes] = {
    "points.csv": "x,y,label\n" + "".join(f"{i / 8},{i % 3},{'ab'[i % 2]}\n" for i in range(16)),
    "binary.csv": "x,y,label\n" + "".join(f"{i / 8},{i % 3},{i % 2}\n" for i in range(16)),
    "gaps.csv": "x,y,target\n" + "".join(f"{i / 8},{'' if i == 5 else i % 3},{i}\n" for i in range(16)),
    "spaces.csv": "x y target\n" + "".join(f"{i} {i % 3} {i / 2}\n" for i in range(16)),
    "thousands.csv": "x;y;target\n" + "".join(f"{i}.000,5;{i % 3};{i / 2}\n" for i in range(16)),
    "ragged.csv": "x,y,target\n1,2,3\n1,2\n3,4,5\n",
    "names.csv": "name,height,weight\n" + "".join(f"Ann{i},{150 + i},{50 + i}\n" for i in range(16)),
    "twice.csv": "x,x,target\n1,2,3\n4,5,6\n",
    "large.csv": "income,age,price\n" + "".join(f"{i * 90_000.0},{20 + i},{i * 1e6}\n" for i in range(24)),
    "only_header.csv": "x,y,target\n",
    "empty.csv": "",
    "short.txt": "Hello",
    "story.txt": "Once upon a time there was a cube of layers. " * 12,
    "notes.txt": "not a configuration\n",
    "train.toml": "[network]\noptions = { hidden = [4] }\n[train]\nepochs = 1\n",
    "evolve.toml": "population = 10\ngenerations = 1\n",
    "broken.toml": "[train]\nepochs = = 1\n",
    "rows.jsonl": "[0.0, 1.0]\n[1.0, 1.0]\n",
    "wide.jsonl": "[0.0, 1.0, 2.0]\n",
    "words.jsonl": '["a", "b"]\n',
    "rows.csv": "0.0,1.0\n1.0,1.0\n",
    "weights.pt": pickle.dumps({"epoch": 3, "losses": [0.5, 0.25]}),
    "empty.gguf": b"",
    "half.safetensors": b"\x40\x00\x00\x00\x00\x00\x00\x00{",
    "picture.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 32,
    "my_losses.py": (
        "def ratio(prediction, target):\n    return prediction.mean() / target\n"
        "def three(a, b, c):\n    return a\n"
        "def numpy_loss(prediction, target):\n    import numpy as np\n    return np.mean(np.abs(prediction - target))\n"
        "def forgets(prediction, target):\n    prediction - target\n"
        "rate = 3\n"
    ),
    "my_fitness.py": (
        "def forgets(genome):\n    genome.activate([0, 1])\n"
        "def fails(genome):\n    return genome.activate([0, 1, 2])[0]\n"
        "def misspells(genome):\n    return genome.activte([0, 1])[0]\n"
        "def neat(genomes, config):\n    for _, genome in genomes:\n        genome.fitness = 1\n"
        "def words(genome):\n    return 'good'\n"
        "def whole(genome):\n    return genome.activate([0, 1])\n"
        "def nan(genome):\n    return float('nan')\n"
        "def breaks(genome):\n    return 1 / 0\n"
    ),
    "broken_module.py": "def f(:\n",
    "needs.py": "import a_library_that_nobody_has\n",
}
"""Text files that mistakes use, beside arrays and models."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the package answers.

    Attributes
    ----------
    message, hint : the lines of the error, or of the warnings
    code : exit code of a command; for Python 1 for an error of the package, and 0 for none
    more : what else stderr has, or the type of an error that is not the package's
    written : files that are new, or changed
    """

    message: str
    hint: str
    code: int
    more: str
    written: tuple[str, ...]


def prepare(home: Path) -> None:
    """Write the files that mistakes use."""
    for name, content in FILES.items():
        (home / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (home / "folder").mkdir()
    x = np.random.default_rng(0).standard_normal((16, 2)).astype(np.float32)
    np.savez(home / "xy.npz", inputs=x, targets=x[:, :1])
    np.savez(home / "torch_names.npz", X=x, y=x[:, :1])
    np.savez(home / "lengths.npz", inputs=x, targets=x[:9, :1])
    np.savez(home / "texts.npz", inputs=np.array(["a", "b"]), targets=x[:2, :1])
    np.savez(home / "nan.npz", inputs=np.where(x > 2, np.nan, x), targets=x[:, :1] + np.nan)
    np.savez(home / "rows.npz", input=x)
    np.savez(home / "wide.npz", input=np.zeros((4, 7), np.float32))
    np.savez(home / "other.npz", x=x)
    np.save(home / "rows.npy", x)
    from tests.generate.letters import write_letters
    from volumetric.builders import sequential
    from volumetric.loaders.native_checkpoint import save_native
    from volumetric.network import initialise

    net = sequential(2, 1, hidden=(3,), activation="tanh")
    save_native(str(home / "model"), net, initialise(net))
    (home / "letters").mkdir()
    write_letters(home / "letters")


@lru_cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "mistake"}
    exec(compile(PRELUDE, "prelude", "exec"), names)
    return names


def attempt(mistake: Mistake, home: Path) -> Answer:
    """Make a mistake in a folder that `prepare` has filled, remove what it wrote, and return the answer."""
    before = _files(home)
    here, path = Path.cwd(), home / "mine.toml"
    os.chdir(home)
    try:
        if mistake.kind == "python":
            message, hint, code, more = _python(mistake.text)
        else:
            line = mistake.text if mistake.kind == "command" else f"{mistake.kind} mine.toml"
            if mistake.kind != "command":
                path.write_text(mistake.text, encoding="utf-8")
            reference = ["--device", "reference"] if mistake.kind == "train" and "device =" not in mistake.text else []
            message, hint, code, more = _command([*shlex.split(line), *reference])
    finally:
        os.chdir(here)
        path.unlink(missing_ok=True)
    after = _files(home)
    written = sorted(name for name in after if after[name] != before.get(name))
    for name in reversed(written):  # the next mistake begins with the files of `prepare`
        if name not in before:
            (home / name).rmdir() if (home / name).is_dir() else (home / name).unlink()
    return Answer(message, hint, code, more, tuple(written))


def _files(home: Path) -> dict[str, tuple[int, int]]:
    paths = (path for path in home.rglob("*") if "__pycache__" not in path.parts)
    return {str(path.relative_to(home)): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def _command(arguments: list[str]) -> tuple[str, str, int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    lines = err.getvalue().splitlines()
    message = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    warned = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    if code == 0:
        return " ".join(warned), " ".join(warned), code, ""
    rest = [line for line in lines if not line.startswith(("error: ", "hint: ", "warning: "))]
    return " ".join(message), " ".join(hints), code, "\n".join(rest)


def _python(code: str) -> tuple[str, str, int, str]:
    with _records() as records, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(code, "mistake", "exec"), dict(_names()))
        except VolumetricError as error:
            return str(error), error.hint or "", 1, ""
        except Exception as error:
            return str(error), "", 1, type(error).__name__
    text = " ".join([*records, *(str(one.message) for one in caught)])
    return text, text, 0, ""


@contextlib.contextmanager
def _records() -> Iterator[list[str]]:
    """Collect the warnings that the package logs."""
    texts: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler, logger = Collector(logging.WARNING), logging.getLogger("volumetric")
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
