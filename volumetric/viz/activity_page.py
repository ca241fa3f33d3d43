"""Pages of films and of running networks: one canvas and one script, without external resources."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final

from volumetric.observe.scene import Scene

COLOURS: Final = (
    (255, 210, 122), (122, 205, 255), (150, 230, 140), (255, 150, 200), (190, 165, 255), (255, 160, 100),
    (110, 225, 200), (225, 225, 225),
)  # fmt: skip
"""Colours of groups at the top of their scales; with more groups they repeat."""
FROM, ODD_COLOUR, GROUND = (26, 26, 36), (194, 24, 91), (17, 17, 17)
NAMED: Final = 40
"""Maximum number of nodes to write names into cells."""
_LINKS: Final = 400
"""Maximum number of links to show them by default."""
_LARGEST_NAMED, _LARGEST_CELL, _FRAME = 92, 44, 860
"""Largest pixels of a cell, with a name and without one, as in the script; pixels of a frame in a notebook."""


def scene_data(scene: Scene, places: list[tuple[int, int]]) -> dict[str, Any]:
    """Return the scene data of the script: places, names and colours of cells."""
    return {
        "cells": places,
        "names": [node.name for node in scene.nodes],
        "roles": [node.role for node in scene.nodes],
        "named": scene.kind == "program" or len(scene.nodes) <= NAMED,
        "group": scene.group_of,
        "groups": scene.groups,
        "depths": _depths(scene, places),
        "edges": [[edge.source, edge.target] for edge in scene.edges],
        "from": FROM,
        "colours": COLOURS,
    }


def page_height(places: list[tuple[int, int]], scene: Scene) -> int:
    """Return the height in pixels of a page with a film, in a frame about as wide as a notebook."""
    columns, lines = (1 + max((place[axis] for place in places), default=0) for axis in (0, 1))
    largest = _LARGEST_NAMED if scene.kind == "program" or len(scene.nodes) <= NAMED else _LARGEST_CELL
    side = max(3, min(largest, 1000 // columns))
    canvas = lines * side * min(1.0, _FRAME / (columns * side))
    legend = 110 + 24 * len(scene.groups)
    beside = columns * side + 330 <= _FRAME
    return round(130 + (max(canvas, legend) if beside else canvas + legend))


def _depths(scene: Scene, places: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Return the column and line below each panel, and its depth; nothing for a single panel."""
    depths = sorted({node.at[2] for node in scene.nodes})
    if len(depths) < 2:
        return []
    labels = []
    for depth in depths:
        own = [place for node, place in zip(scene.nodes, places, strict=True) if node.at[2] == depth]
        left, below = min(place[0] for place in own), 1 + max(place[1] for place in own)
        labels.append((left, below, f"depth {depth:g}"))
    return labels


def page(title: str, film: Mapping[str, Any], *, note: str = "") -> str:
    """Return the page of a film, or, for data with ``"live"``, one that reads events from its own server."""
    # a "<" in a name could end the script with "</script>"
    data = json.dumps(film, separators=(",", ":")).replace("<", "\\u003c")
    live = bool(film.get("live"))
    last = max(int(film.get("frames", 0)) - 1, 0)
    played = (
        ""
        if live
        else f'<input id="at" type="range" min="0" max="{last}" value="0" aria-label="tick">'
        '<label>frames per second <select id="speed"></select></label>'
    )
    links = " checked" if len(film["edges"]) <= _LINKS else ""
    named = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{named}</title>\n<style>{_STYLE}</style>\n'
        f'<h1>{named}</h1>\n<div class="bar"><button id="play">Pause</button>{played}'
        f'<output id="tick"></output><label><input id="ways" type="checkbox"{links}> links</label></div>\n'
        '<div class="all"><canvas id="grid"></canvas><div><ul id="groups"></ul>\n'
        '<p><span class="odd"></span> not finite; framed: <span class="in">input</span>, '
        '<span class="out">output</span>. Brightness is the square root of the root mean square of a node\'s output '
        "on the scale of its group. Darkened: did not "
        f'compute.{html.escape(note)}</p><p id="cell"></p></div></div>\n'
        f"<script>const film={data};\n{_SCRIPT}</script>\n</html>\n"
    )


_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:clamp(.8em,2vw,2em);background:#111;color:#ddd}"
    "h1{font-size:18px;font-weight:normal}"
    ".bar{display:flex;flex-wrap:wrap;gap:1em;align-items:center;margin-bottom:1em}"
    "input[type=range]{width:26em;max-width:50vw}"
    ".all{display:flex;flex-wrap:wrap;gap:2em;align-items:flex-start}canvas{max-width:100%}output{min-width:9em}"
    "ul{list-style:none;padding:0;margin:0}"
    "li{margin:.25em 0;white-space:nowrap}p{max-width:24em;color:#aaa}"
    ".scale,.odd{display:inline-block;height:.8em;vertical-align:middle}.scale{width:7em;margin-right:.6em}"
    ".odd{width:.8em;background:#c2185b}.in{color:#8fd06a}.out{color:#ff9d3c}#cell{color:#fff;min-height:1.2em}"
)
_SCRIPT = """\
const get = id => document.getElementById(id), canvas = get("grid"), at = get("at"), play = get("play");
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const count = film.cells.length, mix = (a, b, part) => Math.round(a + (b - a) * part);
const columns = 1 + Math.max(0, ...film.cells.map(c => c[0])), lines = 1 + Math.max(0, ...film.cells.map(c => c[1]));
const side = Math.max(3, Math.min(film.named ? 92 : 44, Math.floor(1000 / columns)));
canvas.width = columns * side; canvas.height = lines * side + (film.depths.length ? 18 : 0);
const brush = canvas.getContext("2d"), middle = i => film.cells[i].map(x => (x + .5) * side - .5);
const ramp = film.colours.map(to => Array.from({length: 255}, (_, code) =>
  `rgb(${film.from.map((a, i) => mix(a, to[i], Math.sqrt(code / 254)))})`));
const shade = (i, code) => code === 255 ? "#c2185b" : ramp[film.group[i] % ramp.length][code];
const bit = (of, i) => of.length ? of[i >> 3] >> (7 - i % 8) & 1 : 0;
const text = x => x === 0 ? "0" : Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3 ? x.toExponential(1) : x.toPrecision(3);
let frame = null, hovered = -1, runs = true;
film.groups.forEach((name, i) => {
  const item = document.createElement("li"), swatch = document.createElement("span");
  swatch.className = "scale";
  swatch.style.background = `linear-gradient(90deg,${ramp[i % ramp.length][0]},${ramp[i % ramp.length][254]})`;
  item.append(swatch, document.createElement("span"));
  get("groups").append(item);
});
function legend(levels) {
  film.groups.forEach((name, i) => {
    const nodes = film.group.filter(g => g === i).length, range =
      levels[i] ? `: ${text(levels[i][0])} … ${text(levels[i][1])}` : "";
    get("groups").children[i].lastChild.textContent = `${name} (${nodes})${range}`;
  });
}
function arrow(a, b) {
  const [x0, y0] = middle(a), [x1, y1] = middle(b), far = Math.hypot(x1 - x0, y1 - y0);
  if (!far) return;
  const cut = Math.min(far / 2.2, side * .45), dx = (x1 - x0) / far, dy = (y1 - y0) / far, tip = Math.min(7, side / 3);
  const ex = x1 - dx * cut, ey = y1 - dy * cut;
  brush.beginPath(); brush.moveTo(x0 + dx * cut, y0 + dy * cut); brush.lineTo(ex, ey);
  brush.moveTo(ex - dx * tip - dy * tip / 2, ey - dy * tip + dx * tip / 2); brush.lineTo(ex, ey);
  brush.lineTo(ex - dx * tip + dy * tip / 2, ey - dy * tip - dx * tip / 2); brush.stroke();
}
function draw() {
  brush.fillStyle = "#111";
  brush.fillRect(0, 0, canvas.width, canvas.height);
  film.cells.forEach(([x, y], i) => {
    const code = frame ? frame.code[i] : 0, rests = frame && frame.rests(i), left = x * side, top = y * side;
    brush.fillStyle = shade(i, code);
    brush.fillRect(left, top, side - 1, side - 1);
    if (rests) { brush.fillStyle = "#0008"; brush.fillRect(left, top, side - 1, side - 1); }
    if (film.roles[i] === "input" || film.roles[i] === "output") {
      brush.strokeStyle = film.roles[i] === "input" ? "#8fd06a" : "#ff9d3c";
      brush.lineWidth = side > 12 ? 2 : 1;
      brush.strokeRect(left + 1, top + 1, side - 3, side - 3);
    }
    if (film.named && side >= 40) {
      brush.fillStyle = code > 90 && !rests ? "#111" : "#ddd";
      brush.font = "12px system-ui,sans-serif";
      film.names[i].split(" ").slice(0, 4).forEach((word, n) =>
        brush.fillText(word, left + 6, top + 17 + 14 * n, side - 12));
    }
  });
  brush.font = "12px system-ui,sans-serif";
  film.depths.forEach(([x, y, name]) => { brush.fillStyle = "#999"; brush.fillText(name, x * side, y * side + 14); });
  if (get("ways").checked) film.edges.forEach(([a, b], i) => {
    const acts = frame ? frame.acts(i) : 1;
    if (!acts) return;
    brush.strokeStyle = "#4cc3ff"; brush.lineWidth = side > 30 ? 1.5 : 1;
    brush.globalAlpha = film.edges.length > 200 ? .25 : .6;
    arrow(a, b);
    brush.globalAlpha = 1;
  });
  get("tick").textContent = frame ? frame.label : film.live ? "waiting for the first tick" : "no ticks";
  play.textContent = runs ? "Pause" : "Play";
  get("cell").textContent = hovered < 0 || !frame ? "" :
    `${film.names[hovered]}: ${frame.code[hovered] === 255 ? "not finite" : text(frame.value(hovered))}`;
}
canvas.onmousemove = event => {
  const scale = canvas.width / canvas.clientWidth / side;
  const x = Math.floor(event.offsetX * scale), y = Math.floor(event.offsetY * scale);
  hovered = film.cells.findIndex(cell => cell[0] === x && cell[1] === y);
  draw();
};
get("ways").onchange = draw;
if (film.live) follow(); else show();
draw();
function show() {
  const codes = bytes(film.codes), idle = bytes(film.idle), acts = bytes(film.acts), resets = new Set(film.reset);
  const edgeCount = film.frames ? acts.length / film.frames : 0, speed = get("speed");
  let before = 0, rest = 0;
  for (const rate of [...new Set([film.rate, 1, 2, 5, 10, 25, 60])].sort((a, b) => a - b))
    speed.add(new Option(rate, rate, false, rate === film.rate));
  legend(film.levels);
  runs = film.frames > 1;
  const turn = () => {
    const now = Number(at.value);
    if (film.frames) frame = {
      code: codes.subarray(now * count, (now + 1) * count),
      rests: i => bit(idle, now * count + i),
      acts: i => i >= edgeCount || acts[now * edgeCount + i],
      value: i => { const [low, high] = film.levels[film.group[i]];
        return low + codes[now * count + i] / 254 * (high - low); },
      label: `tick ${film.ticks[now]}${resets.has(now) ? ", reset" : ""}`,
    };
    draw();
  };
  const step = now => {
    if (runs) {
      rest += Math.min(now - before, 1000) * Number(speed.value) / 1000;
      const whole = Math.floor(rest);
      rest -= whole;
      if (whole) { at.value = (Number(at.value) + whole) % film.frames; turn(); }
    }
    before = now;
    requestAnimationFrame(step);
  };
  play.onclick = () => { runs = !runs && film.frames > 1; draw(); };
  at.oninput = () => { runs = false; turn(); };
  turn();
  requestAnimationFrame(step);
}
function follow() {
  const events = new EventSource("ticks");
  const floors = film.groups.map(() => []);  // of the last frames: the 10 % quantile of each group's nodes
  let missed = 0;
  legend([]);
  play.onclick = () => { runs = !runs; draw(); };
  events.onmessage = event => {
    const message = JSON.parse(event.data), node = bytes(message.node), odd = bytes(message.odd);
    const fired = bytes(message.fired), edge = bytes(message.edge);
    missed += message.dropped;
    const levels = film.groups.map((name, g) => {
      const own = Array.from(node).filter((_, i) => film.group[i] === g && !bit(odd, i)).sort((a, b) => a - b);
      floors[g].push(own.length ? own[Math.floor(own.length / 10)] : 0);
      if (floors[g].length > 50) floors[g].shift();
      const low = Math.min(...floors[g]);
      return low > 127 && low < 250 ? low : 0;
    });
    if (!runs) return;
    const part = i => Math.max(0, (node[i] - levels[film.group[i]]) / (255 - levels[film.group[i]]));
    frame = {
      code: node.map((_, i) => bit(odd, i) ? 255 : Math.round(254 * part(i))),
      rests: i => fired.length && !bit(fired, i),
      acts: i => i >= edge.length || edge[i],
      value: i => node[i] / 255 * message.scale[film.groups[film.group[i]]],
      label: `tick ${message.t}${message.reset ? ", reset" : ""}, mean ${text(message.meters.mean)}` +
        `${missed ? `, ${missed} missed` : ""}`,
    };
    legend(film.groups.map((name, g) => [levels[g] / 255 * message.scale[name], message.scale[name]]));
    draw();
  };
  events.onerror = () => { events.close(); get("cell").textContent = "the stream has ended; reload to reconnect"; };
}
"""
