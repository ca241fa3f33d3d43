// The slider of frames, with the mean activity, resets, the loop and bookmarks behind it.
import { h } from "../elements.js";
import { eachColumn, placeOf, sharpen, soon, themeOf } from "./pixels.js";

/**
 * Return {element, slider, draw(), show(k), destroy()}.
 *
 * frames() returns the frames; loop() and marks() what is shown behind the slider; go(k) shows a frame; words(k) says it.
 */
export function makeOverview({ app, frames, loop, marks, go, words, unit }) {
  const canvas = h("canvas", { class: "time-overview", "aria-hidden": "true" });
  const slider = h("input", { type: "range", step: 1, "aria-label": `Frame, one for each ${unit}`, oninput: () => go(Number(slider.value)) });
  const element = h("div", { class: "time-scrub" }, canvas, slider);
  function paint() {
    const of = frames(), place = sharpen(canvas);
    if (!place || !of.count) return;
    const { brush, width, height } = place, theme = themeOf(canvas), window = [of.first, of.last];
    let top = 0;
    const columns = [];
    eachColumn(width, window, (x, from, to) => {
      let high = 0, reset = false;
      const stride = Math.max(1, Math.ceil((to - from) / 8));
      for (let k = from; k < to; k++) {
        if ((k - from) % stride === 0) high = Math.max(high, of.meter("mean", k) || 0);
        reset ||= of.reset(k);
      }
      columns.push([x, high, reset]);
      top = Math.max(top, high);
    });
    if (loop()) {
      const [a, b] = loop(), from = placeOf(a - .5, window) * width, to = placeOf(b + .5, window) * width;
      brush.globalAlpha = .16;
      brush.fillStyle = theme("--accent");
      brush.fillRect(from, 0, Math.max(2, to - from), height);
      brush.globalAlpha = 1;
      for (const x of [from, to]) brush.fillRect(Math.min(width - 2, x), 0, 2, height);
    }
    brush.fillStyle = theme("--dim");
    brush.globalAlpha = .45;
    for (const [x, high] of columns) brush.fillRect(x, height - (height - 5) * (top ? high / top : 0), 1, height);
    brush.globalAlpha = .9;
    brush.fillStyle = theme("--accent");
    for (const [x, , reset] of columns) if (reset) brush.fillRect(x, height - 5, 1.5, 5);
    brush.globalAlpha = 1;
    brush.fillStyle = theme("--mark");
    for (const mark of marks()) {
      const x = placeOf(of.at(mark.tick), window) * width;
      brush.beginPath();
      brush.moveTo(x - 4, 0);
      brush.lineTo(x + 4, 0);
      brush.lineTo(x, 7);
      brush.fill();
    }
  }
  const draw = soon(paint), watcher = new ResizeObserver(draw);
  watcher.observe(canvas);
  return {
    element, slider, draw,
    show(k) {
      const of = frames();
      if (slider.min !== String(of.first)) slider.min = of.first;
      if (slider.max !== String(of.last)) slider.max = of.last;
      slider.value = k;
      slider.setAttribute("aria-valuetext", words(k));
    },
    destroy() { watcher.disconnect(); },
  };
}
