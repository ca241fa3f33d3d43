// Nodes by name: a field with a list of hits; Enter goes to one.
import { h } from "../elements.js";
import { nodeCoordinate } from "./node_text.js";

const MOST = 12;

/** Return the indices of up to `most` nodes whose name, port or coordinate has a text, those that start with it first. */
export function nodesNamed(tables, text, most = MOST) {
  const wanted = text.trim().toLowerCase(),
    first = [],
    later = [];
  if (!wanted) return [];
  for (const [port, { node }] of Object.entries(tables.ports)) if (port.toLowerCase().startsWith(wanted)) first.push(node);
  for (let i = 0; i < tables.names.length && first.length < most; i++) {
    const name = tables.names[i].toLowerCase(),
      at = name.indexOf(wanted);
    if (at === 0 || nodeCoordinate(tables, i)?.startsWith(wanted)) first.push(i);
    else if (at > 0 && later.length < most) later.push(i);
  }
  return [...new Set([...first, ...later])].slice(0, most);
}

/** Return {element, focus()} of a field that finds nodes. */
export function mountSearch({ renderer, tables, app }) {
  const list = h("ul", { role: "listbox", id: "scene-hits", class: "scene-hits", hidden: true, "aria-label": "Nodes" });
  const field = h("input", {
    type: "search",
    placeholder: "Find a node",
    "aria-label": "Find a node by name",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "scene-hits",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => look(),
    onfocus: () => look(),
    onblur: () => setTimeout(close, 150),
    onkeydown: press,
  });
  let hits = [],
    at = 0;
  function look() {
    hits = nodesNamed(tables, field.value);
    at = 0;
    list.replaceChildren(
      ...hits.map((node, i) =>
        h(
          "li",
          {
            role: "option",
            id: `scene-hit-${i}`,
            "aria-selected": String(i === at),
            onpointerdown(event) {
              event.preventDefault();
              go(node);
            },
          },
          tables.names[node],
        ),
      ),
    );
    if (field.value.trim() && !hits.length) list.append(h("li", { class: "dim" }, "no node has this in its name"));
    list.hidden = !field.value.trim();
    field.setAttribute("aria-expanded", String(!list.hidden));
    mark();
  }
  function mark() {
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    field.setAttribute("aria-activedescendant", hits.length ? `scene-hit-${at}` : "");
  }
  function close() {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
  }
  function go(node) {
    app.selection.set(node);
    renderer.focus(node);
    close();
    renderer.canvas.focus();
  }
  function press(event) {
    if (event.key === "Escape") {
      field.value = "";
      close();
      renderer.canvas.focus();
    }
    if (event.key === "Enter" && hits.length) go(hits[at]);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !hits.length) return;
    event.preventDefault();
    at = (at + step + hits.length) % hits.length;
    mark();
    list.children[at].scrollIntoView({ block: "nearest" });
  }
  return { element: h("div", { class: "scene-search" }, field, list), focus: () => field.focus() };
}
