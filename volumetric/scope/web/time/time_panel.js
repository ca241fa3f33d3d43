// Time below the scene: which frame of a recording is shown.
import { h } from "../elements.js";

/** Mount the panel; null without recordings. `context` is that of views/scene.js. */
export function mountTime(element, { data, app, renderer }) {
  const recording = data.recordings[0];
  if (!recording || !recording.ticks.data.length) return null;
  const last = recording.ticks.data.length - 1, nodes = renderer.count;
  const colours = new Uint8Array(3 * nodes);
  const slider = h("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Frame", oninput: () => app.time.set(Number(slider.value)) });
  element.append(slider);
  function show(frame) {
    const at = Math.max(0, Math.min(last, frame));
    slider.value = at;
    for (let i = 0; i < nodes; i++) colours.fill(recording.node.data[at * nodes + i], 3 * i, 3 * i + 3);
    renderer.setColours(colours);
  }
  const off = app.time.subscribe(show);
  show(app.time.value);
  return { destroy: off };
}
