// Menus of the training view.
import { h } from "../elements.js";

/** Return a labelled menu; names: {value: text}. */
export function choice(label, names, value, onchange) {
  const select = h(
    "select",
    { "aria-label": label, onchange: () => onchange(select.value) },
    Object.entries(names).map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return h("label", { class: "training-choice" }, h("span", {}, label), select);
}

/** Return {element, run(), update()}: a menu of runs, hidden while there is one. */
export function runChoice(runs, shared, onchange) {
  let chosen = shared.state.get("run"),
    shown = "";
  const select = h("select", {
    "aria-label": "run",
    onchange: () => {
      chosen = select.value;
      shared.state.set("run", chosen);
      onchange();
    },
  });
  const element = h("label", { class: "training-choice" }, h("span", {}, "run"), select);
  const run = () => runs().find(one => one.name === chosen) ?? runs()[0] ?? null;
  return {
    element,
    run,
    update() {
      const names = runs().map(one => one.name),
        text = JSON.stringify(names);
      element.hidden = names.length < 2;
      if (text !== shown) select.replaceChildren(...names.map(name => h("option", { value: name }, name)));
      shown = text;
      if (run()) select.value = run().name;
    },
  };
}
