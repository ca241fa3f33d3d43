// What a conversation's reader sets: how tokens are drawn and how many, and the system prompt. Left empty, a box means the model's own value.
import { h } from "./elements.js";
import { store, stored } from "./tab_storage.js";

const NUMBERS = {
  temperature: ["Temperature", { min: 0, max: 2, step: .1, placeholder: "default" }],
  top_p: ["Top-p", { min: 0, max: 1, step: .05, placeholder: "default" }],
  tokens: ["Max tokens", { min: 1, step: 1, placeholder: "no limit" }],
  seed: ["Seed", { min: 0, step: 1, placeholder: "random" }],
};

/** Return {element, values}: a menu that the tab stores by `name`; `defaults` stand in empty boxes, `more` are labels of further ones. */
export function talkSettings({ name, system = true, defaults = {}, more = [] }) {
  const boxes = Object.fromEntries(Object.entries(NUMBERS).map(([id, [label, about]]) =>
    [id, h("input", { id, type: "number", inputmode: "decimal", "aria-label": label, ...about, placeholder: defaults[id] ?? about.placeholder })]));
  if (system) boxes.system = h("textarea", { id: "system", rows: 2, "aria-label": "System prompt", placeholder: "none" });
  const summary = h("summary", {}, "Settings");
  const element = h("details", { id: "more" }, summary,
    h("div", { class: "settings" }, Object.values(boxes).map(box => h("label", {}, box.getAttribute("aria-label"), box)), more));
  addEventListener("keydown", event => {
    if (event.key !== "Escape" || !element.open) return;
    event.preventDefault();
    element.open = false;
    summary.focus();
  });
  addEventListener("pointerdown", event => { if (!element.contains(event.target)) element.open = false; });
  const earlier = stored(name, {});
  for (const [id, box] of Object.entries(boxes)) {
    if (typeof earlier?.[id] === "string") box.value = earlier[id];
    box.addEventListener("change", () => store(name, Object.fromEntries(Object.entries(boxes).map(([one, { value }]) => [one, value]))));
  }
  return {
    element,
    /** Return what is set: numbers by name, and system. */
    values() {
      const odd = Object.values(boxes).find(box => box.validity.badInput);
      if (odd) throw new Error(`${odd.getAttribute("aria-label")} must be a number.`);
      const filled = Object.entries(boxes).filter(([, box]) => box.value.trim() !== "");
      return Object.fromEntries(filled.map(([id, box]) => [id, id === "system" ? box.value : Number(box.value)]));
    },
  };
}
