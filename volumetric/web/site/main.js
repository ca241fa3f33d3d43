// Puts the page together: the network is loaded with progress, then the view that fits it is shown.
import { about, deviceLine } from "./about.js";
import { h } from "./elements.js";
import { load } from "./engine.js";
import { asRows } from "./genome_runs.js";
import { loading } from "./loading.js";
import { networkSource } from "./network_source.js";

const VIEWS = ["numbers", "field", "image", "stream", "cartpole", "chat", "similarity", "learn_digits", "learn_numbers", "learn_cartpole", "neat", "genomes"];
/** Views for kinds of networks whose export names none. */
const FOR_KIND = { rows: "numbers", sequences: "numbers", stream: "stream", ticks: "stream", language: "chat", encoder: "similarity" };

/** Show the network. A page of one file passes the address of each script, and {modules, texts}: its scripts and data. */
export async function start(addresses = {}, packed = null) {
  const root = document.getElementById("page");
  const title = h("h1", {}, document.title), purpose = h("p", { class: "purpose" }), device = h("p", { class: "device dim", id: "device" }), tools = h("div", { class: "tools" });
  const progress = loading(), stage = h("main", { id: "stage" }, progress.element);
  const alerts = h("div", { class: "alerts" }), speed = h("output", { class: "speed dim", "aria-live": "off" });
  const foot = h("footer", { class: "foot" }, speed);
  root.replaceChildren(h("header", {}, h("div", { class: "heading" }, title, purpose, device), tools), alerts, stage, foot);

  const app = {
    tools,
    /** Show in the line at the bottom how fast it was. */
    speed(text) { speed.textContent = text; },
    /** Show an error until the next call works. */
    fail(error) {
      if (error?.name === "AbortError") return;
      const lost = error?.name === "DeviceLostError";
      const again = h("button", { type: "button", onclick: () => location.reload() }, "Load again");
      alerts.replaceChildren(h("div", { class: "error", role: "alert" }, sentence(error), lost ? again : null));
    },
    clear() { alerts.replaceChildren(); },
    reducedMotion: () => matchMedia("(prefers-reduced-motion: reduce)").matches,
  };

  try {
    const options = { addresses, modules: packed?.modules ?? null }, template = root.dataset.template !== undefined;
    const model = template ? await (await viewOf("choose_model", addresses)).chooseModel(stage, app, options)
      : asRows(await load(networkSource(packed?.texts), { ...options, onProgress: progress.show }));
    const network = model.info;
    document.title = title.textContent = String(network.title || "A network");
    purpose.textContent = String(network.ui?.description ?? "");
    device.textContent = deviceLine(network);
    const kind = VIEWS.includes(network.ui?.view) ? network.ui.view : FOR_KIND[network.kind];
    if (!kind) throw new Error(`This page has no view for a network of the kind ${network.kind}; engine.js runs it.`);
    const view = await viewOf(kind, addresses);
    stage.replaceChildren();
    stage.className = `stage-${kind}`;
    if (template) foot.append(h("button", { type: "button", onclick: () => location.assign(location.pathname) }, "Another file"));
    foot.append(about(network));
    model.lost?.then(app.fail);
    await view.show(stage, model, app);
    document.documentElement.dataset.shown = kind;
  } catch (error) {
    console.warn(error);
    stage.replaceChildren();
    app.fail(error);
    document.documentElement.dataset.failed = "true";
  }
}

async function viewOf(kind, addresses) {
  try {
    return await import(addresses[`views/${kind}.js`] ?? `./views/${kind}.js`);
  } catch (error) {
    throw new Error(`views/${kind}.js cannot be loaded: export the network again, and copy all of its files.`, { cause: error });
  }
}

/** What an error says, as a sentence. */
function sentence(error) {
  const text = String(error?.message ?? error);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
