// Puts the page together: tabs of views, what they share, and messages.
import { readDocument } from "./document.js";
import { button, h } from "./elements.js";
import { exportMenu } from "./export/menu.js";
import { connect } from "./live.js";
import { linkState, observable } from "./observable.js";
import { makeTooltip } from "./tooltip.js";

/** Show the document of the page. `modules` has the address of each script. */
export async function start(modules) {
  const root = document.getElementById("scope");
  const content = readDocument();
  const status = h("div", { class: "status", role: "status", "aria-live": "polite" });
  const alerts = h("div", { class: "alerts", role: "alert" });
  const state = linkState();
  const motion = matchMedia("(prefers-reduced-motion: reduce)"), scheme = matchMedia("(prefers-color-scheme: dark)");
  const dark = observable(state.get("theme", scheme.matches ? "dark" : "light") === "dark");
  const app = {
    doc: content,
    state,
    time: observable(Number(state.get("t", 0))),
    selection: observable(null),
    dark,
    reducedMotion: () => motion.matches,
    tooltip: makeTooltip(document.body),
    /** Say something to people who use a screen reader, and in the line at the bottom. */
    announce(text) { status.textContent = text; },
    /** Show a sentence about something that failed until it is closed. */
    notify(text) {
      const line = h("p", {}, text, button("×", "Close this message", () => line.remove()));
      alerts.append(line);
    },
    live: null,
    view: null,
  };
  app.live = connect(text => app.notify(text));
  const paint = () => { document.documentElement.dataset.theme = dark.value ? "dark" : "light"; };
  paint();
  dark.subscribe(() => { paint(); state.set("theme", dark.value ? "dark" : "light"); });
  scheme.addEventListener("change", () => { if (!state.get("theme")) dark.set(scheme.matches); });

  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const tools = h("div", { class: "tools" });
  const stage = h("main", { class: "stage", id: "stage", role: "tabpanel" });
  root.replaceChildren(
    h("header", {},
      h("h1", { title: content.source }, content.title),
      tabs,
      tools,
      exportMenu(app, stage),
      button("◐", "Dark or light", () => dark.set(!dark.value), { class: "plain" })),
    alerts, stage, status);
  document.documentElement.dataset.views = content.views.length;

  let shown = null, order = 0;
  async function show(view) {
    const turn = ++order;
    shown?.destroy?.();
    shown = null;
    stage.replaceChildren();
    tools.replaceChildren();
    stage.setAttribute("aria-label", view.label);
    for (const tab of tabs.children) {
      const chosen = tab.dataset.name === view.name;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
    }
    state.set("view", view.name);
    app.view = view;
    delete document.documentElement.dataset.shown;
    try {
      const module = await import(modules[`views/${view.kind}.js`]);
      const mounted = await module.mount(stage, view, app, tools);
      if (turn !== order) { mounted?.destroy?.(); return; }
      shown = mounted;
      document.documentElement.dataset.shown = view.name;
    } catch (error) {
      console.error(error);
      app.notify(`${view.label} cannot be shown: ${error.message}`);
    }
  }
  for (const view of content.views) {
    tabs.append(h("button", { type: "button", role: "tab", "data-name": view.name, "aria-controls": "stage", onclick: () => show(view) }, view.label));
  }
  tabs.hidden = content.views.length < 2;
  tabs.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children], next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  });
  addEventListener("keydown", event => {
    const typing = event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && shown?.key?.(event)) event.preventDefault();
  });
  globalThis.scope = app; // for scripts that drive the page
  Object.defineProperty(app, "shown", { get: () => shown });
  await show(content.views.find(view => view.name === state.get("view")) ?? content.views[0]);
}
