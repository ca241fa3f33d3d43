// What the colours, shapes and lines of a scene mean.
import { h } from "../elements.js";
import { SHAPES } from "./node_mesh.js";

const SIGNS = { cube: "■", ball: "●", octahedron: "◆" };

function swatch(colour) {
  const own = ["taper", "dashes", "dim", "ghost"].includes(colour);
  return h("span", { class: own ? `swatch scene-${colour}` : "swatch", style: own ? null : `background:${colour}`, "aria-hidden": "true" });
}

/** Return {element, update()} of the legend; `colour` is the menu that chooses what colours mean. */
export function mountLegend({ renderer, colour }) {
  const body = h("div", { class: "scene-key" });
  const details = h(
    "details",
    { class: "scene-legend", open: innerWidth > 640 },
    h("summary", {}, "Legend"),
    h("label", { class: "scene-colour" }, h("span", {}, "Colour"), colour),
    body,
  );
  let shown = "";
  return {
    element: details,
    update() {
      const { nodes, edges, loops } = renderer.legend(),
        roles = renderer.rolesShown();
      const key = JSON.stringify([nodes, edges, loops, roles]);
      if (key === shown) return;
      shown = key;
      body.replaceChildren(
        ...(nodes.gradient
          ? [
              h("div", {
                class: "scene-gradient",
                role: "img",
                "aria-label": `colours from ${nodes.marks[0][1]} to ${nodes.marks.at(-1)[1]}`,
                style: `background:${nodes.gradient}`,
              }),
              h("div", { class: "scene-marks number" }, ...nodes.marks.map(([, text]) => h("span", {}, text))),
            ]
          : []),
        ...(nodes.unit || nodes.note ? [h("p", { class: "dim" }, [nodes.unit, nodes.note].filter(Boolean).join(", "))] : []),
        ...(nodes.sizes ? [h("p", { class: "dim" }, nodes.sizes)] : []),
        ...(nodes.entries.length ? [h("ul", {}, ...nodes.entries.map(([own, text]) => h("li", {}, swatch(own), text)))] : []),
        ...(roles.length > 1
          ? [h("p", { class: "scene-roles" }, ...roles.map(([role, name]) => h("span", {}, `${SIGNS[SHAPES[role]]} ${name}`)))]
          : []),
        ...(edges.length ? [h("ul", {}, ...edges.map(([own, text]) => h("li", {}, swatch(own), text)))] : []),
        ...(loops ? [h("p", { class: "dim" }, "thin ring: a node that reads itself")] : []),
      );
    },
  };
}
