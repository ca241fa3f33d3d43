// An evolved agent: the pole on the cart that it balances, beside what it reads and does.
import { begin, fallen, forceOf, next, OBSERVED, STEP_MS } from "../cartpole_physics.js";
import { drawCart } from "../cartpole_scene.js";
import { drawn } from "../canvas.js";
import { h, short } from "../elements.js";
import { widthOf } from "../fields.js";
import { milliseconds } from "../latest_run.js";
import { genomePicture } from "../genome_picture.js";

export async function show(stage, model, app) {
  const network = model.info, input = Object.keys(network.inputs)[0], output = Object.keys(network.outputs)[0];
  if (widthOf(network.inputs[input]) !== 4) throw new Error("CartPole is played by networks of four inputs.");
  let state = begin(), force = 0, steps = 0, best = 0, pushes = [], running = false, busy = false;
  const remembers = network.kind === "stream" || network.kind === "ticks";
  const stream = remembers ? model.stream() : null;
  const scene = h("canvas", { class: "world", role: "img", "aria-label": "A pole on a cart" });
  const redraw = drawn(scene, (context, w, hgt, colour) => drawCart(context, w, hgt, colour, state, force));
  const numbers = OBSERVED.map(() => h("td", { class: "number" }));
  const action = h("td", { class: "number" }), raw = h("td", { class: "number" });
  const counter = h("p", { class: "dim number" }), status = h("p", { class: "note", role: "status" });

  const restart = async () => {
    best = Math.max(best, steps);
    state = begin();
    steps = 0;
    await stream?.reset();
  };
  const step = async () => {
    if (busy) return;
    busy = true;
    try {
      const observed = Float32Array.from(state), asked = performance.now();
      const outputs = (await (stream ? stream.step({ [input]: observed }) : model.run({ [input]: observed })))[output];
      app.clear();
      app.speed(`${milliseconds(performance.now() - asked)} a decision`);
      force = forceOf(outputs);
      state = next(state, force + (pushes.shift() ?? 0));
      steps += 1;
      numbers.forEach((cell, i) => { cell.textContent = short(state[i]); });
      raw.textContent = [...outputs].map(short).join(", ");
      action.textContent = force > 0 ? "push right →" : "← push left";
      counter.textContent = `${steps.toLocaleString("en")} steps, best ${Math.max(best, steps).toLocaleString("en")}`;
      redraw();
      if (fallen(state)) {
        status.textContent = `It fell after ${steps} steps.`;
        await restart();
      }
    } catch (error) {
      pause();
      app.fail(error);
    }
    busy = false;
  };
  let timer = 0;
  const loop = async () => {
    const began = performance.now();
    await step();
    if (running) timer = setTimeout(loop, Math.max(0, STEP_MS - (performance.now() - began)));
  };
  const run = h("button", { type: "button", class: "main", onclick: () => (running ? pause() : start()) }, "Run");
  const start = () => { running = true; run.textContent = "Pause"; status.textContent = "Running."; loop(); };
  const pause = () => { running = false; clearTimeout(timer); run.textContent = "Run"; status.textContent = "Paused."; };
  const shove = side => { pushes = Array(3).fill(side * 1.5); status.textContent = `You push to the ${side > 0 ? "right" : "left"}.`; };
  addEventListener("keydown", event => {
    if (event.key === " " && !event.target.closest?.("button, summary")) { event.preventDefault(); run.click(); }
    else if (event.key === "ArrowLeft") shove(-1);
    else if (event.key === "ArrowRight") shove(1);
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden && running) pause(); });
  const picture = genomePicture(network.ui?.genome);
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "World" }, h("h2", {}, "World"), scene,
      h("div", { class: "buttons" }, run, h("button", { type: "button", onclick: () => { pause(); return step(); } }, "Step"),
        h("button", { type: "button", onclick: restart }, "Again"),
        h("button", { type: "button", onclick: () => shove(-1), "aria-keyshortcuts": "ArrowLeft" }, "← Shove"),
        h("button", { type: "button", onclick: () => shove(1), "aria-keyshortcuts": "ArrowRight" }, "Shove →"), counter), status),
    h("section", { class: "card", "aria-label": "Champion" }, h("h2", {}, "Champion"), picture,
      h("table", { class: "now" }, h("tbody", {},
        OBSERVED.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), numbers[i])),
        h("tr", {}, h("th", { scope: "row" }, "output"), raw), h("tr", {}, h("th", { scope: "row" }, "action"), action)))));
  await step();
  if (app.reducedMotion()) status.textContent = "Paused.";
  else start();
}
