// Time below the scene: which frame is shown, playing, strips and a raster of activity, and two recordings compared.
import { button, h } from "../elements.js";
import { makeBookmarks } from "./bookmarks.js";
import { makeComparison, matched } from "./compare.js";
import { makeFrames } from "./frames.js";
import { makeOverview } from "./overview.js";
import { frameAt, soon } from "./pixels.js";
import { makePlayback, SPEEDS } from "./playback.js";
import { makeRaster } from "./raster.js";
import { makeSceneValues, shareRanges } from "./scene_values.js";
import { makeStrips } from "./strips.js";

const ROWS = ["stack", "program"]; // kinds of scenes that run row by row
const count = n => n.toLocaleString("en");
const ordinal = n => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th"}`;

/**
 * Mount the panel; null without recordings and without a running stream. `context` is that of views/scene.js.
 *
 * `data.recordings` has one or two recordings; a running stream sends messages of the kind "frame", of which at most
 * `data.frameLimit` frames are kept. `app.time` is the number of the shown frame. `app.timePanel` has first() and second(), the
 * frames (see frames.js): `app.timePanel.first().value(app.time.value, node)` is the value that is shown.
 */
export function mountTime(element, context) {
  const { data, view, app, renderer } = context, tables = data.scene, recordings = (data.recordings ?? []).slice(0, 2);
  if (!app.live && !recordings.some(one => one.ticks.data.length)) return null;
  const live = app.live !== null, all = recordings.map(one => makeFrames(tables, one));
  const received = live ? makeFrames(tables, null, data.frameLimit) : null;
  if (!all.length) all.push(received);
  let sending = live && all[0] === received, following = live, missing = 0;
  const first = () => (sending ? received : all[0]), second = () => (sending ? null : all[1] ?? null);
  const frames = () => (second() ? [{ frames: first() }, { frames: second() }] : [{ frames: first() }]);
  const unit = ROWS.includes(tables.kind) ? "row" : "tick";
  let window = [0, 0], zoomed = false;

  const sceneValues = makeSceneValues({ tables, renderer, first, second });
  if (second()) shareRanges(first(), second());
  const mode = () => comparison?.mode ?? "first";
  function paint(k) {
    sceneValues.show(k, mode(), comparison?.second);
    const lacks = second() && matched(first(), second(), k) === null;
    const between = mode() === "difference" ? comparison.say(sceneValues.range()) : "";
    notes.compare.textContent = lacks ? `${second().name} has no frame at this ${unit}` : between;
  }

  // Steps
  let shown = 0, going = false;
  function go(k) {
    if (!first().count) return;
    going = true;
    if (live && sending) follow(k >= first().last);
    app.time.set(first().clamp(k));
    going = false;
    playback.moved();
  }
  function words(k) {
    const of = first(), total = of.count;
    if (!total) return "waiting for frames";
    return `${unit} ${count(of.tick(k))} of ${count(of.tick(of.last))}`;
  }
  function show(k) {
    if (!first().count) { place.textContent = words(0); return; }
    shown = first().clamp(k);
    overview.show(shown);
    place.textContent = words(shown);
    place.title = `frame ${count(shown - first().first + 1)} of ${count(first().count)}${first().reset(shown) ? ", the stream was reset" : ""}`;
    resetSign.hidden = !first().reset(shown);
    if (zoomed && (shown < window[0] || shown > window[1])) setWindow(shown - Math.floor((window[1] - window[0]) / 2), window[1] - window[0]);
    strips.show(shown);
    raster.show(shown);
    paint(shown);
    if (!playback.playing) app.state.set("t", shown);
  }
  function step(by) { playback.pause(); go(shown + by); app.announce(`${words(shown)}${first().reset(shown) ? ", reset" : ""}`); }

  // The part of time that the charts show
  function setWindow(a, length) {
    const of = first(), size = Math.max(4, Math.min(of.count - 1, length)), from = Math.max(of.first, Math.min(of.last - size, a));
    window = [from, Math.max(from, Math.min(of.last, from + size))];
    zoomed = window[1] - window[0] < of.count - 1;
    whole.hidden = !zoomed;
    redraw();
  }
  function zoom(event, at) {
    if (event.ctrlKey || !first().count) return;
    event.preventDefault();
    const way = Math.sign(event.deltaY), centre = frameAt(at, window), next = Math.round((window[1] - window[0]) * 1.25 ** way) + way;
    setWindow(Math.round(centre - at * next), next);
  }
  const redraw = soon(() => { overview.draw(); strips.draw(); raster.draw(); strips.show(shown); raster.show(shown); });

  // Loop
  let loop = null, loopStart = null;
  function setLoop(next) {
    loop = next && next[1] > next[0] ? next : null;
    playback.setLoop(loop);
    loopButton.setAttribute("aria-pressed", String(loop !== null));
    loopButton.textContent = loopStart !== null ? "⟲ A…" : "⟲";
    app.state.set("loop", loop ? loop.join("-") : null);
    overview.draw();
  }
  /** First press: A is here; second press: B is here, and it loops; third: no loop. */
  function turnLoop() {
    if (loop) { loopStart = null; setLoop(null); app.announce("no loop"); return; }
    if (loopStart === null) { loopStart = shown; setLoop(null); app.announce(`loop from ${words(shown)}: go to its end and press again`); return; }
    const range = loopStart === shown ? [first().first, first().last] : [Math.min(loopStart, shown), Math.max(loopStart, shown)];
    loopStart = null;
    setLoop(range);
    app.announce(`loop from ${unit} ${count(first().tick(range[0]))} to ${count(first().tick(range[1]))}`);
  }

  // Running streams
  function follow(next) {
    following = live && next;
    liveButton.setAttribute("aria-pressed", String(following));
  }
  const arrived = soon(() => {
    if (!sending) return;
    if (!zoomed) window = [received.first, Math.max(received.first, received.last)];
    if (following) app.time.set(received.last); else if (!received.has(shown)) app.time.set(received.first); else show(shown);
    if (performance.now() - lastCharts > 125 || received.count < 3) { lastCharts = performance.now(); redraw(); }
    say();
  });
  let lastCharts = 0;
  const playback = makePlayback({
    frames: first, show: k => { going = true; app.time.set(k); going = false; }, current: () => shown,
    changed() {
      play.textContent = playback.playing ? "❚❚" : "▶";
      play.setAttribute("aria-label", playback.playing ? "Pause (Space)" : "Play (Space)");
      play.title = play.getAttribute("aria-label");
      if (!playback.playing) { app.state.set("t", shown); app.announce(words(shown)); }
    },
  });
  function toggle() {
    if (live && sending && following) { follow(false); app.announce(`paused at ${words(shown)}; frames are still received`); return; }
    if (playback.playing) playback.pause(); else playback.play();
  }

  const play = button("▶", "Play (Space)", toggle, { class: "time-play" });
  const place = h("span", { class: "time-place number" }), resetSign = h("span", { class: "time-reset", hidden: true }, "reset");
  const setSpeed = () => { playback.setSpeed(Number(speed.value)); app.state.set("speed", speed.value); };
  const speed = h("select", { "aria-label": "Speed, frames a second", title: "Frames a second", onchange: setSpeed },
    SPEEDS.map(one => h("option", { value: one }, `${one}/s`)));
  const loopButton = button("⟲", "Loop: press at its start, then at its end (L)", turnLoop, { "aria-pressed": "false" });
  const catchUp = () => { playback.pause(); follow(true); if (received.count) app.time.set(received.last); };
  const liveButton = button("● live", "Follow the running stream", catchUp, { class: "time-live", "aria-pressed": String(live), hidden: !live });
  const bookmarks = makeBookmarks({
    app, unit, tick: () => (first().count ? first().tick(shown) : null), go: tick => pick(first().at(tick)), changed: () => overview.draw(),
  });
  const whole = button("⤢", "Charts of all frames", () => setWindow(first().first, first().count), { hidden: true });
  const notes = { sample: h("span", {}), compare: h("span", {}) };
  const pick = k => { playback.pause(); go(k); };
  const overview = makeOverview({ app, frames: first, loop: () => loop, marks: bookmarks.marks, go: pick, words, unit });
  const other = k => (second() ? matched(first(), second(), k) : null);
  const strips = makeStrips({ app, tables, frames, other, window: () => window, go: pick, unit, onZoom: zoom });
  const raster = makeRaster({
    app, tables, frames, cell: (k, node) => sceneValues.cell(k, node, mode()), mode, window: () => window, go: pick, unit, onZoom: zoom,
  });
  const compared = () => { if (comparison) { show(shown); redraw(); } };
  const comparison = all.length > 1 ? makeComparison({ app, tables, renderer, names: all.map(one => one.name), changed: compared }) : null;
  const parts = { strips: strips.element, raster: raster.element };
  const charts = h("div", { class: "time-charts" }, ...Object.values(parts));
  const fitting = innerHeight < 640 ? "none" : innerWidth > 640 ? "strips,raster" : "strips";
  const wanted = new Set((app.state.get("charts") ?? fitting).split(","));
  function turnChart(name) {
    if (!wanted.delete(name)) wanted.add(name);
    app.state.set("charts", [...wanted].join(",") || "none");
    arrange();
  }
  const switches = Object.keys(parts).map(
    name => button(name[0].toUpperCase() + name.slice(1), `Show ${name}`, () => turnChart(name), { "data-chart": name }));
  function arrange() {
    for (const one of switches) {
      const on = wanted.has(one.dataset.chart);
      one.setAttribute("aria-pressed", String(on));
      parts[one.dataset.chart].hidden = !on;
    }
    charts.hidden = Object.values(parts).every(part => part.hidden);
    redraw();
  }
  function say() {
    const of = first(), texts = [];
    if (of.step > 1) texts.push(`every ${ordinal(of.step)} of ${count(of.total)} frames`);
    if (of.missed) texts.push(`${count(of.missed)} later ${unit}s were not recorded`);
    if (sending && of.first) texts.push(`the oldest ${count(of.first)} frames were dropped`);
    if (missing) texts.push(`${count(missing)} frames did not fit this scene`);
    notes.sample.textContent = texts.join("; ");
  }
  const panel = h("section", { class: "time", "aria-label": "Time" },
    h("div", { class: "time-bar" },
      h("div", { class: "time-keys", role: "group", "aria-label": "Playing" },
        button("|‹", "First frame (Home)", () => step(-Infinity)), button("‹", "One frame back (,)", () => step(-1)), play,
        button("›", "One frame on (.)", () => step(1)), button("›|", "Last frame (End)", () => step(Infinity))),
      place, resetSign, liveButton, speed, loopButton, bookmarks.element, comparison?.element ?? null,
      h("span", { class: "time-space" }), h("span", { class: "dim time-notes" }, notes.compare, notes.sample),
      whole, h("div", { class: "time-modes", role: "group", "aria-label": "Charts" }, switches)),
    overview.element, charts);
  element.append(panel);

  // Begin where the link says
  const asked = Number(app.state.get("speed")), usual = SPEEDS.filter(one => one <= Math.max(1, live ? 25 : Math.min(25, first().count / 2)));
  playback.setSpeed(SPEEDS.includes(asked) ? asked : Math.max(...usual));
  speed.value = playback.speed;
  window = [first().first, Math.max(first().first, first().last)];
  const range = /^(\d+)-(\d+)$/.exec(app.state.get("loop") ?? "");
  if (range && first().has(Number(range[1])) && first().has(Number(range[2]))) setLoop([Number(range[1]), Number(range[2])]);
  const offTime = app.time.subscribe(k => { show(k); if (!going) playback.moved(); });
  const choose = node => { strips.choose(node); raster.choose(node); };
  const offSelection = app.selection.subscribe(choose), offTheme = app.dark.subscribe(() => redraw());
  choose(app.selection.value);
  arrange();
  say();
  comparison?.start();
  if (app.time.value !== first().clamp(app.time.value) && first().count) app.time.set(first().clamp(app.time.value)); else show(app.time.value);

  // Last: messages that waited come at once
  const end = live ? app.live.on(view.name, message => {
    if (message.kind !== "frame") return;
    if (!received.append(message)) { missing++; return; }
    if (!sending) { sending = true; follow(true); comparison?.element.remove(); element.dataset.live = "true"; }
    arrived();
  }) : null;

  context.time = app.timePanel = { first, second, playback, words, unit, go, charts: { strips, raster }, get shown() { return shown; } };
  const keys = {
    " ": toggle, k: toggle, ",": () => step(-1), ".": () => step(1), Home: () => step(-Infinity), End: () => step(Infinity), l: turnLoop,
    b: () => bookmarks.add(), ...(comparison ? { d: () => comparison.turn() } : {}), PageUp: () => step(-page()), PageDown: () => step(page()),
  };
  function page() { return Math.max(1, Math.round(first().count / 20)); }
  return {
    time: context.time,
    key(event) {
      const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
      if (!act || (event.key === " " && event.target.closest?.("button, summary, a, [role=tab]"))) return false;
      act();
      return true;
    },
    destroy() {
      if (app.timePanel === context.time) app.timePanel = null;
      end?.();
      offTime();
      offSelection();
      offTheme();
      playback.destroy();
      bookmarks.destroy();
      comparison?.destroy();
      for (const part of [overview, strips, raster]) part.destroy();
      panel.remove();
    },
  };
}
