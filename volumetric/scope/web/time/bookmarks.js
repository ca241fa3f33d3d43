// Named ticks, which the page's link holds.
import { button, h } from "../elements.js";

const MOST = 50, LONGEST = 60;

/** Return the bookmarks of a link's text: [{tick, name}], by tick. */
export function readBookmarks(text) {
  if (!text) return [];
  const marks = text.split("!").map(part => {
    const at = part.indexOf("~");
    let name = "";
    try { name = decodeURIComponent(part.slice(at + 1)); } catch { name = part.slice(at + 1); }
    return { tick: Number(part.slice(0, at)), name: name.slice(0, LONGEST) };
  });
  return marks.filter(mark => Number.isFinite(mark.tick)).slice(0, MOST).sort((a, b) => a.tick - b.tick);
}

/** Return the text of bookmarks for a link. */
export const writeBookmarks = marks => marks.map(({ tick, name }) => `${tick}~${encodeURIComponent(name).replace(/!/g, "%21")}`).join("!");

/**
 * Return {element, marks(), add(), destroy()}: a button with a list of bookmarks, which can be named, visited and removed.
 *
 * tick() returns the present one; go(tick) shows one; changed() is called after every change; unit is "tick" or "row".
 */
export function makeBookmarks({ app, tick, go, changed, unit }) {
  let marks = readBookmarks(app.state.get("marks"));
  const list = h("ol", { class: "time-marks" });
  const note = h("p", { class: "dim" });
  const panel = h("div", { class: "time-menu panel", hidden: true, role: "group", "aria-label": "Bookmarks" },
    button("+ Bookmark this " + unit, `Bookmark this ${unit} (B)`, () => add()), note, list);
  const opener = button("★", "Bookmarks", () => { panel.hidden = !panel.hidden; opener.setAttribute("aria-expanded", String(!panel.hidden)); },
    { "aria-expanded": "false", "aria-haspopup": "true" });
  const element = h("div", { class: "time-holder" }, opener, panel);
  function save() { app.state.set("marks", writeBookmarks(marks)); draw(); changed(); }
  function add() {
    const now = tick();
    if (now === null || marks.some(mark => mark.tick === now)) { app.announce(`this ${unit} has a bookmark`); return; }
    if (marks.length >= MOST) { app.notify(`there are ${MOST} bookmarks: remove one first`); return; }
    marks = [...marks, { tick: now, name: `${unit} ${now.toLocaleString("en")}` }].sort((a, b) => a.tick - b.tick);
    save();
    app.announce(`bookmark at ${unit} ${now.toLocaleString("en")}`);
  }
  function draw() {
    note.textContent = marks.length ? "" : "none yet";
    note.hidden = marks.length > 0;
    list.replaceChildren(...marks.map(mark => h("li", {},
      button(mark.tick.toLocaleString("en"), `Go to ${mark.name}`, () => go(mark.tick), { class: "plain number" }),
      h("input", { type: "text", value: mark.name, maxlength: LONGEST, "aria-label": `Name of the bookmark at ${unit} ${mark.tick}`,
        onchange(event) { mark.name = event.target.value; save(); } }),
      button("×", `Remove ${mark.name}`, () => { marks = marks.filter(one => one !== mark); save(); }, { class: "plain" }))));
  }
  const outside = event => { if (!element.contains(event.target)) close(); };
  function close() { panel.hidden = true; opener.setAttribute("aria-expanded", "false"); }
  addEventListener("pointerdown", outside);
  panel.addEventListener("keydown", event => { if (event.key === "Escape") { close(); opener.focus(); event.stopPropagation(); } });
  draw();
  return { element, add, marks: () => marks, destroy() { removeEventListener("pointerdown", outside); } };
}
