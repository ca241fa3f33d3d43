"""Frames of the scope's scene in Chromium: a lattice of nodes with edges between neighbours, with new values each time.

    .venv/bin/python -m benchmarks scope_frames --nodes 50000 --edges 150000

Prints draw calls of a frame, then median and quartiles of: a frame while the values of all nodes change, a frame while
the scene turns, finding the node under the pointer, and building the page's data in Python. Without a GPU, Chromium
draws on the processor (SwiftShader). A frame ends when its first pixel can be read.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from tests.scope.pages import WEBGL, open_page
from tests.serve.chromium import chromium
from volumetric.observe.scene import Scene, SceneEdge, SceneNode
from volumetric.scope import ScopeDocument, Viewer
from volumetric.scope.scene_tables import scene_view

_VALUES = """(() => {
  const renderer = scope.shown.renderer, frames = [];
  const two = [0, 1].map(k => Float32Array.from({ length: renderer.count }, (_, i) => ((i + k) * 7919) % 1000 / 1000));
  for (let frame = -2; frame < FRAMES; frame++) {
    const began = performance.now();
    renderer.setValues({ values: two[frame & 1] });
    renderer.timedFrame();
    if (frame >= 0) frames.push(performance.now() - began);
  }
  return frames;
})()"""
_TURNS = """(() => {
  const renderer = scope.shown.renderer, frames = [];
  for (let frame = 0; frame < FRAMES; frame++) {
    renderer.cameras.orbit(.05, 0);
    frames.push(renderer.timedFrame());
  }
  return frames;
})()"""
_PICKS = """(() => {
  const renderer = scope.shown.renderer, times = [];
  for (let frame = 0; frame < FRAMES; frame++) {
    renderer.cameras.orbit(.05, 0);
    const began = performance.now();
    renderer.pick(200 + frame * 5, 300);
    times.push(performance.now() - began);
  }
  return times;
})()"""


def lattice_scene(nodes: int, edges: int) -> Scene:
    """Return a scene of nodes in a block, with edges to near ones."""
    side = max(1, round(nodes ** (1 / 3)))
    rng = np.random.default_rng(0)
    sources = rng.integers(0, nodes, edges)
    targets = np.clip(sources + rng.choice([1, side, side * side, -1, -side, -side * side], edges), 0, nodes - 1)
    return Scene(
        kind="fabric",
        nodes=tuple(
            SceneNode(
                id=i,
                name=f"core {i}",
                role="cell",
                group=f"population {i % 3}",
                at=(float(i % side), float(i // side % side), float(i // side // side)),
            )
            for i in range(nodes)
        ),
        edges=tuple(
            SceneEdge(id=i, source=int(a), target=int(b), kind="edge", delay=1 + i % 3)
            for i, (a, b) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True))
        ),
        populations={},
    )


def text(milliseconds: list[float]) -> str:
    """Return median and quartiles."""
    if len(milliseconds) < 2:
        return f"{milliseconds[0]:8.1f} ms"
    low, middle, high = statistics.quantiles(milliseconds, n=4)
    return f"{middle:8.1f} ms  ({low:.1f} … {high:.1f}, {len(milliseconds)} times)"


def main(argv: list[str] | None = None) -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--edges", type=int, default=150_000)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    options = parser.parse_args(argv)
    scene = lattice_scene(options.nodes, options.edges)
    view, times = scene_view(scene), []
    for _ in range(5):
        start = time.perf_counter()
        view = scene_view(scene)
        times.append(1e3 * (time.perf_counter() - start))
    with tempfile.TemporaryDirectory() as folder, chromium(*WEBGL) as page:
        path = Viewer(ScopeDocument(title="frames", source="benchmark", views=(view,))).save(Path(folder) / "page.html")
        size = {"width": options.width, "height": options.height, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        start = time.perf_counter()
        open_page(page, f"file://{path}")
        shown = 1e3 * (time.perf_counter() - start)
        info = page.value("(scope.shown.renderer.now(), scope.shown.renderer.info())")
        size_text = f"{info['nodes']:,} nodes, {info['edges']:,} edges"
        print(f"{size_text}: {info['calls']} draw calls, {info['triangles']:,} triangles")
        print(f"renderer        {page.value(_RENDERER)}")
        for what, script in (("new values", _VALUES), ("turning", _TURNS), ("node at a place", _PICKS)):
            print(f"{what:16}{text(page.value(script.replace('FRAMES', str(options.frames))))}")
        print(f"{'page shown':16}{shown:8.1f} ms")
    print(f"{'data in Python':16}{text(times)}")


_RENDERER = """(() => {
  const gl = scope.shown.renderer.canvas.getContext("webgl2"), info = gl.getExtension("WEBGL_debug_renderer_info");
  return info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : "unknown";
})()"""


if __name__ == "__main__":
    main()
