// The menu that saves what is on screen.
import { button, h } from "../elements.js";
import { saveFile } from "../save_file.js";
import { figuresOf, film, pngOf, svgText } from "./save.js";

const nameOf = app => `${app.doc.title} ${app.view.label}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "scope";

/** Return the button with its menu. `stage` is the element of the shown view. */
export function exportMenu(app, stage) {
  let filming = null;
  const exported = () => app.shown?.exports?.() ?? {};
  const drawings = () => {
    const own = exported().svg;
    const svg = typeof own === "function" ? own() : own;
    return svg ? [svg] : [...stage.querySelectorAll(".chart svg")];
  };
  const items = {
    "PNG picture": async () => saveFile(`${nameOf(app)}.png`, await pngOf(stage)),
    "SVG drawing": () => {
      const all = drawings();
      if (!all.length) throw new Error("this view has no lines to draw as SVG; save it as PNG");
      all.forEach((svg, i) => saveFile(`${nameOf(app)}${i ? `-${i + 1}` : ""}.svg`, typeof svg === "string" ? svg : svgText(svg), "image/svg+xml"));
    },
    "WebM film": async () => {
      if (filming) {
        const done = filming;
        filming = null;
        start.textContent = "WebM film";
        saveFile(`${nameOf(app)}.webm`, await done.stop());
        return;
      }
      const { canvas } = exported();
      if (!canvas) throw new Error("this view has no scene to film");
      filming = film(canvas);
      start.textContent = "Stop the film";
      app.announce("filming; choose Stop the film to save it");
    },
    "Figure for a paper": async () => {
      const figures = figuresOf(stage, exported());
      if (!figures.length) throw new Error("this view has no figure; save it as PNG or SVG");
      const content = { "volumetric.figure": 1, title: app.doc.title, figures };
      const answer = app.live ? await app.live.act("scope", { do: "figure", ...content }).catch(() => null) : null;
      if (answer?.pdf) saveFile(`${nameOf(app)}.pdf`, Uint8Array.from(atob(answer.pdf), letter => letter.charCodeAt(0)), "application/pdf");
      else {
        saveFile(`${nameOf(app)}.figure.json`, JSON.stringify(content), "application/json");
        app.notify(`saved as numbers: volumetric scope ${nameOf(app)}.figure.json -o figure.pdf draws them with Matplotlib`);
      }
    },
    "Copy the link": async () => {
      const address = app.state.address();
      try {
        await navigator.clipboard.writeText(address);
        app.announce("the link to this view is copied");
      } catch {
        app.notify(address);
      }
    },
  };
  const list = h("div", { class: "menu", role: "menu", "aria-label": "Save what is shown", hidden: true },
    Object.entries(items).map(([label, run]) => h("button", {
      type: "button", role: "menuitem", onclick: async () => {
        close();
        try { await run(); } catch (error) { app.notify(error.message); }
      },
    }, label)));
  const start = [...list.children].find(item => item.textContent === "WebM film");
  const open = button("⤓", "Save what is shown", () => (list.hidden ? show() : close()), { class: "plain", "aria-haspopup": "menu", "aria-expanded": "false" });
  function show() {
    list.hidden = false;
    open.setAttribute("aria-expanded", "true");
    list.firstElementChild.focus();
  }
  function close() {
    list.hidden = true;
    open.setAttribute("aria-expanded", "false");
  }
  list.addEventListener("keydown", event => {
    event.stopPropagation();
    const all = [...list.children], at = all.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); all[(at + step + all.length) % all.length].focus(); }
    if (event.key === "Escape") { close(); open.focus(); }
  });
  addEventListener("pointerdown", event => { if (!list.contains(event.target) && event.target !== open) close(); });
  return h("div", { class: "menu-holder" }, open, list);
}
