// Balance a pole by hand: the network learns from what the visitor does in each state, and then plays itself.
import { begin, fallen, forceOf, next, OBSERVED, STEP_MS } from "../cartpole_physics.js";
import { drawCart } from "../cartpole_scene.js";
import { drawn } from "../canvas.js";
import { curves } from "../curves.js";
import { h, short } from "../elements.js";
import { widthOf } from "../fields.js";
import { milliseconds } from "../latest_run.js";
import { lastGuesses, lessons } from "../lessons.js";
import { saveFile } from "../save_file.js";
import { csv } from "../tables.js";

const ACTIONS = ["left", "right"];
const SPEEDS = { 1: "real time", .5: "1/2", .25: "1/4", .125: "1/8" };
const MOST_STEPS = 500; // of an episode of CartPole-v1
const UPDATES = 4; // after each push, if those of the last one are done
const TAP_STEPS = 3; // of a push by a button that is not held
const REST_MS = 700; // after a fall

export async function show(stage, model, app) {
  const network = model.info, [input] = Object.keys(network.inputs), [output] = Object.keys(network.outputs), target = network.learner.targets[output];
  if (widthOf(network.inputs[input]) !== 4 || widthOf(network.outputs[output]) > 2) throw new Error("CartPole is played by networks of four inputs and two outputs or one.");
  let state = begin(), force = 0, steps = 0, episode = 0, round = 0, running = false, plays = false, push = 0, taps = 0, used = false, busy = false, timer = 0, learning = false;
  const [you, itself] = ["You", "Network"].map(name => ({ name, last: null, best: 0, total: 0, cells: [0, 1, 2].map(() => h("td", { class: "number" })) }));
  const guesses = lastGuesses();

  const scene = h("canvas", { class: "world", role: "img", "aria-label": "A pole on a cart" });
  const redraw = drawn(scene, (context, w, hgt, colour) => drawCart(context, w, hgt, colour, state, force));
  const balanced = curves(["you", "network"], "Steps of each episode");
  const counter = h("p", { class: "dim number" }), status = h("p", { class: "note", role: "status" });
  const now = OBSERVED.map(() => h("td", { class: "number" })), raw = h("td", { class: "number" }), choice = h("td", { class: "number" });
  const speed = h("select", { "aria-label": "Speed" }, Object.entries(SPEEDS).sort(([a], [b]) => b - a).map(([value, name]) => h("option", { value, selected: Number(value) === .25 }, name)));

  const lesson = await lessons(model, app, {
    batchOf: samples => [Float32Array.from(samples.flatMap(sample => sample.x)), targetsOf(samples, target, widthOf(network.outputs[output]))],
    measure: guesses,
    note: `It makes ${UPDATES} updates after each of your pushes, of pushes drawn from all of yours, on your GPU. Guesses count before it is told.`,
    buttons: [
      h("button", { type: "button", onclick: () => { const last = lesson.samples.at(-1)?.episode; lesson.keep(sample => sample.episode !== last); } }, "Undo an episode"),
      h("button", { type: "button", onclick: () => lesson.keep(() => false) }, "Remove all"),
      h("button", { type: "button", onclick: () => saveFile("samples.csv", csv([...OBSERVED, "action"], lesson.samples.map(({ x, action }) => [...x, ACTIONS[action]])), "text/csv") }, "Save samples"),
    ],
  });

  /** One step of the world: the visitor's push, else the network's, else none. */
  const step = async () => {
    if (busy) return;
    busy = true;
    try {
      const at = round, observed = Float32Array.from(state), asked = performance.now(), outputs = (await model.run({ [input]: observed }))[output];
      if (at !== round) { busy = false; return; } // paused, or begun anew, meanwhile
      if (!lesson.learning && !learning) app.speed(`${milliseconds(performance.now() - asked)} a decision`);
      const chosen = forceOf(outputs), own = push;
      if (taps > 0 && --taps === 0) push = 0;
      if (own) {
        used = true;
        guesses.add(chosen === own);
        lesson.add({ x: [...observed], action: own > 0 ? 1 : 0, episode });
        learnSoon();
      }
      force = own || (plays ? chosen : 0);
      state = next(state, force);
      steps += 1;
      count(plays ? itself : you);
      now.forEach((cell, i) => { cell.textContent = short(state[i]); });
      raw.textContent = [...outputs].map(short).join(", ");
      choice.textContent = chosen > 0 ? "push right →" : "← push left";
      counter.textContent = `${steps} steps`;
      redraw();
      if (fallen(state) || steps >= MOST_STEPS) end();
    } catch (error) {
      pause();
      app.fail(error);
    }
    busy = false;
  };
  const learnSoon = () => {
    if (learning || lesson.learning) return;
    learning = true;
    lesson.learn(UPDATES).finally(() => { learning = false; });
  };
  /** Count the episode; the network plays on, and the visitor begins with a push. */
  const end = () => {
    const player = plays ? itself : you;
    player.last = steps;
    tell(player);
    balanced.add(plays ? [null, steps] : [steps, null]);
    status.textContent = `${!fallen(state) ? "Balanced" : "It fell"} after ${steps} steps.${plays ? "" : " Push to begin again."}`;
    renew();
    stop();
    if (plays) timer = setTimeout(loop, REST_MS);
    else running = false;
    label();
  };
  const renew = () => {
    [state, force, steps, push, taps] = [begin(), 0, 0, 0, 0];
    episode++;
    redraw();
  };
  const tell = ({ last, best, total, cells }) => [last ?? "–", best, total].forEach((value, i) => { cells[i].textContent = value.toLocaleString("en"); });
  const count = player => {
    player.best = Math.max(player.best, steps);
    player.total += 1;
    tell(player);
  };

  const loop = async () => {
    const began = performance.now(), at = round;
    await step();
    if (running && round === at) timer = setTimeout(loop, Math.max(0, STEP_MS / Number(speed.value) - (performance.now() - began)));
  };
  const start = () => {
    if (running) return;
    running = true;
    app.clear();
    status.textContent = plays ? "The network plays. Push to correct it: it learns that, too." : "You play.";
    label();
    loop();
  };
  const stop = () => { round++; clearTimeout(timer); };
  const pause = () => { running = false; stop(); push = taps = 0; status.textContent = "Paused."; label(); };
  const label = () => { run.textContent = running ? "Pause" : "Start"; lets.textContent = plays ? "Let me play" : "Let it play"; };
  const run = h("button", { type: "button", class: "main", onclick: () => (running ? pause() : start()) });
  const change = () => {
    pause();
    plays = !plays;
    renew();
    label();
    status.textContent = "Push to begin.";
    if (plays) start();
  };
  const lets = h("button", { type: "button", onclick: change });
  const hold = side => { push = side; taps = 0; used = false; start(); };
  /** A push that is over before the next step acts in that one. */
  const release = side => {
    if (push !== side || taps) return;
    if (used) push = 0;
    else taps = 1;
  };

  let pointed = false; // whether the speed was chosen with the pointer: then the arrow keys push again
  speed.addEventListener("pointerdown", () => { pointed = true; });
  speed.addEventListener("keydown", () => { pointed = false; });
  speed.addEventListener("change", () => { if (pointed) speed.blur(); });
  addEventListener("keydown", event => {
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.altKey || event.metaKey) return;
    if (side) { event.preventDefault(); if (!event.repeat) hold(side); }
    else if (event.key === " " && !event.target.closest?.("button, summary")) { event.preventDefault(); run.click(); }
  });
  addEventListener("keyup", event => release({ ArrowLeft: -1, ArrowRight: 1 }[event.key]));
  addEventListener("blur", () => { push = 0; });
  document.addEventListener("visibilitychange", () => { if (document.hidden && running) pause(); });
  /** A button that pushes while it is held; pressed by a key or a screen reader, it pushes for some steps. */
  const pusher = (side, text, key) => h("button", {
    type: "button", class: "push", "aria-keyshortcuts": key,
    onpointerdown: event => { event.currentTarget.setPointerCapture(event.pointerId); hold(side); },
    onpointerup: () => release(side), onpointercancel: () => release(side), oncontextmenu: event => event.preventDefault(),
    onclick: event => { if (event.detail === 0) { hold(side); taps = TAP_STEPS; } },
  }, text);

  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "World" }, h("h2", {}, "Balance the pole"), scene,
      h("div", { class: "pushes" }, pusher(-1, "← Push", "ArrowLeft"), pusher(1, "Push →", "ArrowRight")),
      h("div", { class: "buttons" }, run, lets, h("label", { class: "inline" }, "Speed", speed), counter), status,
      h("p", { class: "note" }, "Hold an arrow key or a button to push the cart; without a push it rolls on. What you do in each step is a sample.")),
    h("section", { class: "card", "aria-label": "Score" }, h("h2", {}, "Steps"),
      h("table", { class: "now" }, h("thead", {}, h("tr", {}, ["Player", "last", "best", "all"].map((name, i) => h("th", { scope: "col", class: i ? "out" : null }, name)))),
        h("tbody", {}, [you, itself].map(({ name, cells }) => h("tr", {}, h("th", { scope: "row" }, name), cells)))),
      balanced.element,
      h("h2", {}, "What it would do"),
      h("table", { class: "now" }, h("tbody", {}, OBSERVED.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), now[i])),
        h("tr", {}, h("th", { scope: "row" }, "output"), raw), h("tr", {}, h("th", { scope: "row" }, "action"), choice)))),
    lesson.card);
  for (const player of [you, itself]) tell(player);
  label();
  status.textContent = "Push to begin: hold an arrow key or a button.";
}

/** Targets of pushes: classes, a one for the output of the push, or the side of a single output. */
function targetsOf(samples, { classes, loss }, width) {
  if (classes !== undefined) return Int32Array.from(samples, ({ action }) => action);
  if (width === 2) return Float32Array.from(samples.flatMap(({ action }) => [1 - action, action]));
  return Float32Array.from(samples, ({ action }) => (loss === "bce" ? action : 2 * action - 1));
}
