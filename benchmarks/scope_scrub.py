"""What a step through a long recording costs in a browser: 10,000 ticks of a fabric of 32 × 32 nodes.

Run as ``python -m benchmarks scope_scrub``. A step is a new frame in all of the page: the scene's colours, drawn and
read back (a browser without a GPU draws on the processor), and the charts. Also printed: the seconds until the page is
there, and what a redraw of the charts takes, which steps do not need.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.scope.pages import WEBGL, open_page
from tests.serve.chromium import Page, chromium
from volumetric import fabric, open_device
from volumetric.fabric import Blueprint, Input, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.observe import Recording, record
from volumetric.run.streams import open_stream
from volumetric.scope import ScopeDocument, Viewer
from volumetric.scope.recording_view import recording_view

LLVMPIPE = ("--use-gl=angle", "--use-angle=gl-egl", "--ignore-gpu-blocklist")
SCRIPTS = "(k => { const began = performance.now(); scope.time.set(k); return performance.now() - began; })"
DRAW = """
  scope.shown.renderer.now?.();
  const gl = scope.shown.renderer.canvas.getContext("webgl2");
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  return performance.now() - began; })"""
SCENE = "(k => { const began = performance.now();" + DRAW
STEP = "(k => { const began = performance.now(); scope.time.set(k);" + DRAW
PICTURE = """(async k => {
  const began = performance.now();
  scope.time.set(k);
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
})"""


def recorded(side: int, ticks: int) -> Recording:
    """Return activity of a fabric that a moving sum of waves and noise drives."""
    graph = lattice2d.Graph(width=side, height=side, populations={"core": Population(cell=SLSTM(hidden=2))})
    model = fabric.compile(Blueprint(graph=graph, inputs={"in": Input(4)}, outputs={"out": Output(2)}))
    t, rng = np.arange(ticks), np.random.default_rng(0)
    x = np.sin(t[:, None] / np.array([7, 13, 29, 5])) + 0.5 * rng.standard_normal((ticks, 4))
    resets = (t % 1000 == 0).astype(np.int64)[None]
    stream = open_stream(open_device("cpu"), model.network, model.params, batch=1)
    return record(stream, x.astype(np.float32)[None], resets=resets)


def processor_seconds(page: Page) -> float:
    """Return seconds of the processor that all processes of the browser have used."""
    session, page._session = page._session, {}  # a question to the browser, not to the page
    try:
        return sum(one["cpuTime"] for one in page.call("SystemInfo.getProcessInfo")["processInfo"])
    finally:
        page._session = session


def report(what: str, milliseconds: list[float]) -> None:
    """Print median, quartiles and the largest."""
    low, middle, high = statistics.quantiles(milliseconds, n=4)
    print(f"{what}: {middle:.1f} ms (quartiles {low:.1f} … {high:.1f}, largest {max(milliseconds):.1f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--ticks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--llvmpipe", action="store_true", help="draw by Mesa's llvmpipe instead of SwiftShader")
    options = parser.parse_args()
    recording = recorded(options.side, options.ticks)
    print(recording)
    document = ScopeDocument(title="scrubbing", source="a benchmark", views=(recording_view(recording, budget=None),))
    places = np.random.default_rng(1).integers(0, len(recording), options.steps).tolist()
    with tempfile.TemporaryDirectory() as folder, chromium(*(LLVMPIPE if options.llvmpipe else WEBGL)) as page:
        path = Viewer(document).save(Path(folder) / "page.html")
        print(f"page: {path.stat().st_size / 1e6:.1f} MB")
        page.call("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
        began = time.monotonic()
        open_page(page, f"file://{path}")
        print(f"opened in {time.monotonic() - began:.1f} s")
        page.value("scope.selection.set(100)")

        def times(script: str) -> list[Any]:
            return [page.value(f"{script}({k})") for k in places]

        times(STEP)
        for what, script in (
            ("step, scripts alone", SCRIPTS),
            ("the same scene, drawn and read back", SCENE),
            ("step, drawn and read back", STEP),
            ("step until the second picture after it", PICTURE),
        ):
            before = processor_seconds(page)
            report(what, times(script))
            used = 1e3 * (processor_seconds(page) - before) / len(places)
            print(f"  of the processor {used:.1f} ms, all processes and threads of the browser")
        redraw = "(async () => { const began = performance.now(); scope.timePanel.charts.{part}.draw();"
        redraw += " await new Promise(done => requestAnimationFrame(done)); return performance.now() - began; })()"
        for part in ("strips", "raster"):
            report(f"redraw of the {part}", [page.value(redraw.replace("{part}", part)) for _ in range(8)])


if __name__ == "__main__":
    main()
