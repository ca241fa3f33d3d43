// The level of one weight: its exact value, how it is stored, and what it multiplies.
import { h } from "../elements.js";
import { codeText } from "./matrix_panel.js";

const pairs = list => h("dl", { class: "inspect-facts" }, list.flatMap(([name, value]) => [h("dt", {}, name), h("dd", { class: "number" }, value)]));

/** Return a sentence about what a weight does, or null. */
function meaning(layer, parameter, index) {
  const name = parameter.name.split("/").at(-1);
  if (/(^|\.)bias$/.test(name)) return `It is added to number ${index.at(-1)} of the result.`;
  if (!/weight$/.test(name)) return null;
  if (index.length === 1) return `It multiplies number ${index[0]} of the row.`;
  const part = parameter.parts && parameter.parts.names[Math.floor(index[parameter.parts.axis] / parameter.parts.size)];
  const where = part ? ` (${part}, ${index[parameter.parts.axis] % parameter.parts.size})` : "";
  if (name === "hh.weight") return `It multiplies number ${index[1]} of the output before, for pre-activation ${index[0]}${where}.`;
  if (layer.kind === "embedding") return `It is number ${index[1]} of the row of id ${index[0]}.`;
  return `It multiplies number ${index.slice(1).join(", ")} of what is read, for number ${index[0]} of the result${where}.`;
}

/** Show one weight. */
export async function showWeight(inspector, level) {
  const { layer } = inspector.source.place(inspector.node), parameter = layer.parameters.find(one => one.name === level.parameter);
  if (!parameter) throw new Error(`This layer has no weights ${level.parameter}.`);
  const block = await inspector.source.parameter(layer, parameter, [level.row, level.row + 1], [level.column, level.column + 1]);
  const facts = [["weight", `${layer.coord}/${parameter.name}[${level.index.join(", ")}]`], ["stored as", parameter.dtype]];
  if (block.codes) facts.push([block.kind === "integer" ? "code" : "bits", codeText(parameter, block, 0)]);
  if (block.scale) facts.push(["scale", String(block.scale.data[0])]);
  if (block.offset) facts.push(["offset", String(block.offset.data[0])]);
  if (block.scale && block.codes) facts.push(["value", `${block.scale.data[0]} · ${block.codes.data[0]}${block.offset ? ` + ${block.offset.data[0]}` : ""}`]);
  const sentence = meaning(layer, parameter, level.index);
  return {
    element: h("div", {},
      h("p", { class: "inspect-value number" }, String(block.values.data[0])),
      sentence ? h("p", {}, sentence) : null, pairs(facts)),
  };
}
