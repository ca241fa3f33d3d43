"""An animation of what layers do over ticks, as a web page that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from volumetric._typing import Array, F32Array
from volumetric.atomic import write_atomic
from volumetric.errors import ShapeError, UnsupportedError
from volumetric.grid import Coord

_TOP, _ODD = 254, 255
"""Codes of the largest value of a film, and of one that is no finite number; 0 is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A film: how strong the output of every layer is after each tick.

    Cells stand where the layers are: a panel for each depth, a row and a column for each of the grid, slots side by
    side. Brightness is the square root of a value's part in the largest one, so that weak layers show.

    Attributes
    ----------
    layers : coordinate → what stands there, for the tooltip
    values : float32 ``[ticks, layers]``, 0 or more, in the order of `layers`
    title : what is shown

    Raises
    ------
    ShapeError : there is not a value for each layer
    """

    layers: Mapping[Coord, str]
    values: F32Array
    title: str

    def __post_init__(self) -> None:
        """Check the shape."""
        if self.values.ndim != 2 or self.values.shape[1] != len(self.layers):
            raise ShapeError(f"activity: expected [ticks, {len(self.layers)}], got {list(self.values.shape)}")

    def save(self, path: str | Path) -> None:
        """Write the page, whole or not at all. Raises `UnsupportedError` unless `path` ends in ``.html``."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise UnsupportedError(f"cannot write a film to {path.name!r}", hint="name the file with .html")
        write_atomic(path, self.html().encode())

    @property
    def top(self) -> float:
        """The largest finite value; 1 where there is none above 0."""
        finite = self.values[np.isfinite(self.values)]
        return float(finite.max(initial=0)) or 1.0

    def codes(self) -> Array:
        """Return a byte for each value, ``[ticks, layers]``: linear up to the largest, 255 for what is not finite."""
        known = np.isfinite(self.values)
        part = np.where(known, self.values, 0).astype(np.float64) / self.top
        return np.where(known, np.rint(_TOP * np.clip(part, 0, 1)), _ODD).astype(np.uint8)

    def html(self) -> str:
        """Return the page: the grid, what plays, pauses and scrubs, and the scale."""
        title = html.escape(self.title)
        film: dict[str, Any] = {
            "ticks": len(self.values),
            "top": self.top,
            "cells": _places(list(self.layers)),
            "names": [f"{coord} {what}" for coord, what in self.layers.items()],
            "codes": base64.b64encode(self.codes().tobytes()).decode(),
        }
        # "<" would end the script where a name had "</script>"
        data = json.dumps(film, separators=(",", ":")).replace("<", "\\u003c")
        last = max(len(self.values) - 1, 0)
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<style>{_STYLE}</style>\n'
            f'<h1>{title}</h1>\n<p><button id="play">Pause</button> '
            f'<input id="at" type="range" min="0" max="{last}" value="0" aria-label="tick"> '
            '<output id="tick"></output>\n<label>ticks a second '
            '<select id="speed"><option>2<option>10<option selected>25<option>60</select></label>\n'
            '<canvas id="grid"></canvas>\n'
            f'<p>0 <span class="scale"></span> {self.top:.4g} root mean square of a layer\'s output; '
            '<span class="odd"></span> not finite. <span id="cell"></span>\n'
            f"<script>const film={data};\n{_SCRIPT}</script>\n</html>\n"
        )


def _places(coords: Sequence[Coord]) -> list[tuple[int, int]]:
    """Column and row of each layer: panels of one depth each, in lines that make the whole about square."""
    slots = 1 + max((c.slot for c in coords), default=0)
    wide = (1 + max((c.x for c in coords), default=0)) * slots + 1
    high = 1 + max((c.y for c in coords), default=0) + 1
    depths = sorted({c.z for c in coords})
    across = max(1, min(len(depths), round((len(depths) * high / wide) ** 0.5)))
    panel = {z: divmod(i, across) for i, z in enumerate(depths)}
    return [(panel[c.z][1] * wide + c.x * slots + c.slot, panel[c.z][0] * high + c.y) for c in coords]


_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;background:#111;color:#ddd}h1{font-size:18px;font-weight:normal}"
    "input{width:40em;max-width:60vw;vertical-align:middle}canvas{display:block;max-width:100%}"
    "output{display:inline-block;min-width:7em}.scale,.odd{display:inline-block;height:.8em;vertical-align:middle}"
    ".scale{width:12em;background:linear-gradient(90deg,#1a1a24,#ffd27a)}.odd{width:.8em;background:#c2185b}"
)
_SCRIPT = """\
const get = id => document.getElementById(id), canvas = get("grid"), at = get("at"), play = get("play");
const codes = Uint8Array.from(atob(film.codes), c => c.charCodeAt(0)), count = film.cells.length;
const columns = 1 + Math.max(0, ...film.cells.map(c => c[0])), lines = 1 + Math.max(0, ...film.cells.map(c => c[1]));
const side = Math.max(4, Math.min(48, Math.floor(1200 / columns)));
canvas.width = columns * side; canvas.height = lines * side;
const brush = canvas.getContext("2d");
const shade = Array.from({length: 256}, (_, code) => {
  if (code === 255) return "#c2185b";
  const part = Math.sqrt(code / 254), mix = (a, b) => Math.round(a + (b - a) * part);
  return `rgb(${mix(26, 255)},${mix(26, 210)},${mix(36, 122)})`;
});
let hovered = -1, before = 0, rest = 0, runs = film.ticks > 1;
function draw() {
  const tick = Number(at.value);
  film.cells.forEach(([x, y], i) => {
    brush.fillStyle = film.ticks ? shade[codes[tick * count + i]] : shade[0];
    brush.fillRect(x * side, y * side, side - 1, side - 1);
  });
  get("tick").textContent = film.ticks ? `tick ${tick + 1} of ${film.ticks}` : "no ticks";
  play.textContent = runs ? "Pause" : "Play";
  const code = codes[tick * count + hovered];
  const shown = code === 255 ? "not finite" : (code / 254 * film.top).toPrecision(3);
  get("cell").textContent = hovered < 0 || !film.ticks ? "" : `${film.names[hovered]}: ${shown}`;
}
function step(now) {
  if (runs) {
    rest += Math.min(now - before, 250) * Number(get("speed").value) / 1000;
    const whole = Math.floor(rest);
    rest -= whole;
    if (whole) { at.value = (Number(at.value) + whole) % film.ticks; draw(); }
  }
  before = now;
  requestAnimationFrame(step);
}
play.onclick = () => { runs = !runs && film.ticks > 1; draw(); };
at.oninput = () => { runs = false; draw(); };
canvas.onmousemove = event => {
  const scale = canvas.width / canvas.clientWidth / side;
  const x = Math.floor(event.offsetX * scale), y = Math.floor(event.offsetY * scale);
  hovered = film.cells.findIndex(cell => cell[0] === x && cell[1] === y);
  draw();
};
draw();
requestAnimationFrame(step);
"""
