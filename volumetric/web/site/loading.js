// How far the loading of a network is: a bar, what is happening, how fast, and how long it will take.
import { h } from "./elements.js";

const WINDOW = 5000; // ms over which the speed is measured

/** Return {element, show(event)}: `show` takes the events of `load`. */
export function loading() {
  const bar = h("progress", { max: 1, "aria-label": "Loading the network" }), now = h("p", { class: "dim number" }, "Reading the network…");
  let marks = []; // [time, bytes] within the window
  return {
    element: h("div", { class: "loading" }, bar, now),
    show({ stage, loaded = 0, total = 0, cached = false }) {
      if ((stage !== "weights" && stage !== "header") || !total) {
        bar.removeAttribute("value");
        now.textContent = stage === "kernels" ? "Compiling kernels for this GPU…" : "Loading…";
        return;
      }
      const time = performance.now();
      if (loaded < marks.at(-1)?.[1]) marks = [];
      marks = [...marks.filter(([at]) => at > time - WINDOW), [time, loaded]];
      const [[since, before]] = marks, speed = time > since + 500 ? (1000 * (loaded - before)) / (time - since) : 0;
      bar.value = loaded / total;
      now.textContent = [
        `Loading weights: ${megabytes(loaded)} of ${megabytes(total)} MB`, cached && "stored in this browser",
        speed && `${megabytes(speed)} MB/s`, speed && loaded < total && `${duration((total - loaded) / speed)} left`,
      ].filter(Boolean).join(" · ");
    },
  };
}

export const megabytes = bytes => (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);

function duration(seconds) {
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
