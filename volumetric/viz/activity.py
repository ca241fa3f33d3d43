"""Films of recorded activity: a web page that needs nothing else, or a GIF."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric._typing import Array
from volumetric.atomic import write_atomic
from volumetric.errors import SpecError, UnsupportedError
from volumetric.observe.recording import Recording
from volumetric.observe.scene import Scene
from volumetric.viz.gif import gif

TOP, ODD = 254, 255
"""Codes of a node at the end of its scale, and of one whose output is not finite; 0 is 0."""
_FROM, _TO, _ODD_COLOUR, _GROUND = (26, 26, 36), (255, 210, 122), (194, 24, 91), (17, 17, 17)
_SHADES: Final = 62
_LARGEST: Final = 480  # pixels of a GIF's longer side, about


def save_film(recording: Recording, path: str | Path, *, rate: int = 25, frames: int = 500) -> None:
    """Write a film, whole or not at all.

    Cells stand where the nodes are: a panel for each depth. Brightness is the square root of a value's part in the
    scale of its group, so that weak ones show.

    Parameters
    ----------
    path : ends in ``.html``: a page with play, pause and scrubbing; or in ``.gif``
    rate : frames a second
    frames : most that a GIF has; of more, every so many are drawn

    Raises
    ------
    UnsupportedError : `path` ends in something else
    CheckpointError : it cannot be written
    SpecError : a number is too small
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".html", ".htm", ".gif"):
        raise UnsupportedError(f"cannot write a film to {path.name!r}", hint="name the file with .html or .gif")
    if rate < 1 or frames < 1:
        raise SpecError(f"a film needs a rate and frames of 1 or more, got {rate} and {frames}")
    write_atomic(
        path, film_gif(recording, rate=rate, frames=frames) if suffix == ".gif" else film_page(recording).encode()
    )


def codes_of(recording: Recording) -> Array:
    """Return a byte for each value, ``[frames, nodes]``: up to 254 as recorded, 255 for what is not finite."""
    return np.where(recording.odd, ODD, np.minimum(recording.node, TOP)).astype(np.uint8)


def places_of(scene: Scene) -> list[tuple[int, int]]:
    """Column and line of each node: panels of one depth each, in lines that make the whole about square.

    Where nodes do not stand in a grid, the places of a panel are as many as it needs for them to stand about alone.
    """
    at = np.array([node.at for node in scene.nodes], np.float64).reshape(len(scene.nodes), 3)
    column, line, depth = (_ranks(at[:, i], len(at)) for i in range(3))
    wide, high = int(column.max(initial=0)) + 2, int(line.max(initial=0)) + 2
    panels = int(depth.max(initial=0)) + 1
    across = max(1, min(panels, round((panels * high / wide) ** 0.5)))
    return [
        (int(depth[i] % across * wide + column[i]), int(depth[i] // across * high + line[i])) for i in range(len(at))
    ]


def _ranks(x: Array, count: int) -> Array:
    """Whole numbers for places along an axis: their order where they are few, else evenly from least to largest."""
    values, order = np.unique(x, return_inverse=True)
    most = max(1, 2 * int(np.ceil(count**0.5)))
    if len(values) <= max(most, 32):
        return order.reshape(-1)
    return np.rint((x - values[0]) / (values[-1] - values[0]) * most).astype(np.int64)


def film_page(recording: Recording) -> str:
    """Return the page: the nodes, what goes between them, what plays, pauses and scrubs."""
    scene, meta = recording.scene, recording.meta
    title = html.escape(meta.title or f"{scene.kind}: {len(recording):,} frames")
    film: dict[str, Any] = {
        "frames": len(recording),
        "ticks": recording.ticks.tolist(),
        "cells": places_of(scene),
        "names": [node.name for node in scene.nodes],
        "named": scene.kind == "program",
        "acts": base64.b64encode(recording.edge.tobytes()).decode() if recording.edge.size else "",
        "group": scene.group_of,
        "scale": [[float(f"{value:.4g}") for value in row] for row in _changes(recording.scale)],
        "edges": [[edge.source, edge.target] for edge in scene.edges],
        "reset": np.flatnonzero(recording.reset).tolist(),
        "codes": base64.b64encode(codes_of(recording).tobytes()).decode(),
        "idle": base64.b64encode(np.packbits(~recording.fired).tobytes()).decode() if not recording.fired.all() else "",
    }
    # "<" would end the script where a name had "</script>"
    data = json.dumps(film, separators=(",", ":")).replace("<", "\\u003c")
    last = max(len(recording) - 1, 0)
    note = f" {meta.missed:,} later ticks are not shown." if meta.missed else ""
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<style>{_STYLE}</style>\n'
        f'<h1>{title}</h1>\n<p><button id="play">Pause</button> '
        f'<input id="at" type="range" min="0" max="{last}" value="0" aria-label="tick"> '
        '<output id="tick"></output>\n<label>frames a second '
        '<select id="speed"><option>2<option>10<option selected>25<option>60</select></label>\n'
        '<label><input id="ways" type="checkbox"> links</label>\n'
        '<canvas id="grid"></canvas>\n'
        '<p>0 <span class="scale"></span> the largest root mean square of a layer\'s output among those of its kind; '
        f'<span class="odd"></span> not finite.{note} <span id="cell"></span>\n'
        f"<script>const film={data};\n{_SCRIPT}</script>\n</html>\n"
    )


def _changes(scale: Array) -> Array:
    """The scale of each frame, or of all where it stays as it is."""
    return scale[:1] if len(scale) and (scale == scale[0]).all() else scale


def film_gif(recording: Recording, *, rate: int, frames: int) -> bytes:
    """Return an animated GIF; time runs as at `rate` frames a second also where frames are left out."""
    places = np.array(places_of(recording.scene), np.int64).reshape(-1, 2)
    wide, high = places.max(0, initial=0) + 1
    side = int(max(2, min(72 if recording.scene.kind == "program" else 24, _LARGEST // max(wide, high, 1))))
    every = max(1, -(-len(recording) // frames))
    codes = codes_of(recording)[::every]
    shades = np.where(codes == ODD, _SHADES + 1, 1 + np.rint((_SHADES - 1) * np.sqrt(codes / TOP)).astype(np.int64))
    canvas = np.zeros((max(len(codes), 1), high * side, wide * side), np.uint8)
    for i, (column, line) in enumerate(places.tolist()):
        spot = canvas[:, line * side : (line + 1) * side - 1, column * side : (column + 1) * side - 1]
        spot[:] = 1 if not len(codes) else shades[:, i, None, None]
    mixed = [
        tuple(round(a + (b - a) * i / (_SHADES - 1)) for a, b in zip(_FROM, _TO, strict=True)) for i in range(_SHADES)
    ]
    return gif(canvas, [_GROUND, *mixed, _ODD_COLOUR], seconds=every / rate)


_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;background:#111;color:#ddd}h1{font-size:18px;font-weight:normal}"
    "input[type=range]{width:40em;max-width:60vw;vertical-align:middle}canvas{display:block;max-width:100%}"
    "output{display:inline-block;min-width:9em}.scale,.odd{display:inline-block;height:.8em;vertical-align:middle}"
    ".scale{width:12em;background:linear-gradient(90deg,#1a1a24,#ffd27a)}.odd{width:.8em;background:#c2185b}"
)
_SCRIPT = """\
const get = id => document.getElementById(id), canvas = get("grid"), at = get("at"), play = get("play");
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const codes = bytes(film.codes), idle = bytes(film.idle), count = film.cells.length, resets = new Set(film.reset);
const columns = 1 + Math.max(0, ...film.cells.map(c => c[0])), lines = 1 + Math.max(0, ...film.cells.map(c => c[1]));
const side = Math.max(3, Math.min(film.named ? 96 : 24, Math.floor(1200 / columns)));
const acts = bytes(film.acts), told = film.frames ? acts.length / film.frames : 0;
canvas.width = columns * side; canvas.height = lines * side;
const brush = canvas.getContext("2d"), middle = i => film.cells[i].map(x => (x + .5) * side - .5);
const shade = Array.from({length: 256}, (_, code) => {
  if (code === 255) return "#c2185b";
  const part = Math.sqrt(code / 254), mix = (a, b) => Math.round(a + (b - a) * part);
  return `rgb(${mix(26, 255)},${mix(26, 210)},${mix(36, 122)})`;
});
let hovered = -1, before = 0, rest = 0, runs = film.frames > 1;
function draw() {
  const now = Number(at.value), any = film.frames > 0;
  brush.fillStyle = "#111";
  brush.fillRect(0, 0, canvas.width, canvas.height);
  film.cells.forEach(([x, y], i) => {
    const place = now * count + i, rests = film.idle && any && idle[place >> 3] >> (7 - place % 8) & 1;
    brush.fillStyle = any ? shade[codes[place]] : shade[0];
    brush.fillRect(x * side, y * side, side - 1, side - 1);
    if (rests) { brush.fillStyle = "#0008"; brush.fillRect(x * side, y * side, side - 1, side - 1); }
    if (film.named && side >= 40) {
      brush.fillStyle = any && codes[place] > 90 && !rests ? "#111" : "#ddd";
      brush.font = "12px system-ui,sans-serif";
      brush.fillText(film.names[i], x * side + 4, y * side + 15, side - 9);
    }
  });
  if (get("ways").checked) film.edges.forEach(([a, b], i) => {
    if (i < told && !acts[now * told + i]) return;
    brush.strokeStyle = told ? "#4cc3ff" : any ? shade[codes[now * count + a]] : shade[0];
    brush.lineWidth = told ? 2 : 1;
    brush.globalAlpha = .5;
    brush.beginPath(); brush.moveTo(...middle(a)); brush.lineTo(...middle(b)); brush.stroke();
    brush.globalAlpha = 1;
  });
  get("tick").textContent = any ? `tick ${film.ticks[now]}${resets.has(now) ? ", begins anew" : ""}` : "no ticks";
  play.textContent = runs ? "Pause" : "Play";
  const code = codes[now * count + hovered], scales = film.scale[Math.min(now, film.scale.length - 1)];
  const shown = code === 255 ? "not finite" : (code / 255 * (scales ? scales[film.group[hovered]] : 0)).toPrecision(3);
  get("cell").textContent = hovered < 0 || !any ? "" : `${film.names[hovered]}: ${shown}`;
}
function step(now) {
  if (runs) {
    rest += Math.min(now - before, 250) * Number(get("speed").value) / 1000;
    const whole = Math.floor(rest);
    rest -= whole;
    if (whole) { at.value = (Number(at.value) + whole) % film.frames; draw(); }
  }
  before = now;
  requestAnimationFrame(step);
}
play.onclick = () => { runs = !runs && film.frames > 1; draw(); };
at.oninput = () => { runs = false; draw(); };
get("ways").onchange = draw;
canvas.onmousemove = event => {
  const scale = canvas.width / canvas.clientWidth / side;
  const x = Math.floor(event.offsetX * scale), y = Math.floor(event.offsetY * scale);
  hovered = film.cells.findIndex(cell => cell[0] === x && cell[1] === y);
  draw();
};
draw();
requestAnimationFrame(step);
"""
