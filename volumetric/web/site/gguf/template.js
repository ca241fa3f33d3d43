// Templates: exports of language models whose weights come from a GGUF file (docs/web_format.md). Here they are checked, and
// compared with the header of a file.

import { isObject, isWhole, wrong } from "../network_file.js";
import { sha256 } from "../sources.js";
import { F32, TYPES } from "./header.js";

const CHAT_TEMPLATE = "tokenizer.chat_template";

const isInteger = value => isWhole(Math.abs(value));
const shown = value => (value === undefined ? "absent" : JSON.stringify(typeof value === "bigint" ? String(value) : value));

/** Return the checked `template` of a network.json, or raise `FormatError`. */
export function checkTemplate(template) {
  if (!isObject(template)) throw wrong("it is not a template: it has weights of its own");
  for (const name of ["metadata", "arrays", "tensors", "fixed", "ends", "types"]) if (!isObject(template[name])) throw wrong(`template.${name} must be an object`);
  if (!Array.isArray(template.fills)) throw wrong("template.fills must be a list");
  for (const [type, { block_bytes: bytes, parts }] of Object.entries(template.types)) {
    const fits = Object.hasOwn(TYPES, type) && bytes === TYPES[type][2] && isObject(parts) && Object.values(parts).every(sections => Array.isArray(sections) && sections.length && sections.every(isSection));
    if (!fits) throw wrong(`template.types[${type}] is not valid`);
  }
  for (const [i, fill] of template.fills.entries()) {
    if (!Array.isArray(fill) || !fill.every(one => isEntry(one, template))) throw wrong(`template.fills[${i}] is not valid`);
  }
  return template;
}

function isSection({ blocks, words, align, terms, xor = [] }) {
  return isWhole(blocks, 1, 64) && isWhole(words, 1, 4096) && isWhole(align, 1, 256) && Array.isArray(xor) && xor.length <= words && xor.every(one => isInteger(one))
    && Array.isArray(terms) && terms.every(([word, delta, mask]) => isWhole(word, 0, words - 1) && isWhole(delta + 2 ** 20, 0, 2 ** 21) && isWhole(mask, 0, 2 ** 32 - 1));
}

function isEntry([name, part, rows, plus = 0], { tensors, types }) {
  const type = Object.hasOwn(tensors, name) ? tensors[name][0] : null;
  const known = part === "words" ? type === 0 && Number.isFinite(plus) : Object.hasOwn(types, type) && Object.hasOwn(types[type].parts, part);
  return known && Array.isArray(rows) && rows.every(([tensor, buffer, loops]) => isWhole(tensor) && isWhole(buffer) && Array.isArray(loops) && loops.length <= 8
    && loops.every(([count, ...steps]) => isWhole(count, 1) && steps.length === 2 && steps.every(isInteger)));
}

/** Return how the file differs from what the template was written for, as a sentence; empty if it fits. */
export async function difference(template, header) {
  const architecture = header.value("general.architecture"), belongs = key => key === "general.architecture" || (key.startsWith("tokenizer.") && !key.startsWith(CHAT_TEMPLATE)) || key.startsWith(`${architecture}.`);
  const differs = (what, has, expected) => `${what} is ${has} in the file and ${expected} in the template.`;
  const own = [...header.metadata].filter(([key]) => belongs(key));
  const plain = new Map(own.filter(([, one]) => Object.hasOwn(one, "value"))), arrays = new Map(own.filter(([, one]) => !Object.hasOwn(one, "value")));
  for (const key of new Set(["general.architecture", ...Object.keys(template.metadata), ...plain.keys()])) {
    const has = plain.get(key), expected = Object.hasOwn(template.metadata, key) ? template.metadata[key] : undefined;
    const equal = has && (has.type === F32 && typeof expected === "number" ? Math.fround(has.value) === Math.fround(expected) : (typeof has.value === "bigint" ? Number(has.value) : has.value) === expected);
    if (!equal) return differs(key, shown(has?.value), shown(expected));
  }
  for (const name of new Set([...Object.keys(template.tensors), ...header.tensors.keys()])) {
    const has = header.tensors.get(name), [type, shape] = Object.hasOwn(template.tensors, name) ? template.tensors[name] : [];
    const text = (number, sizes) => (sizes ? `${TYPES[number]?.[0] ?? number} [${sizes}]` : "absent");
    if (text(has?.type, has?.shape) !== text(type, shape)) return differs(`Tensor ${name}`, text(has?.type, has?.shape), text(type, shape));
  }
  for (const key of new Set([...Object.keys(template.arrays), ...arrays.keys()])) {
    const has = arrays.get(key), expected = Object.hasOwn(template.arrays, key) ? template.arrays[key] : undefined;
    const text = (one, kind) => (one ? `an array of ${one.count} of type ${kind}` : "absent");
    if (text(has, has?.kind) !== text(expected, expected?.type)) return differs(key, text(has, has?.kind), text(expected, expected?.type));
    if (await sha256(header.bytes(has.start, has.stop)) !== expected.sha256) return `The elements of ${key} are others in the file than in the template.`;
  }
  return "";
}

/** Return the network.json of a template for a file: with the file's name and texts. */
export function networkFor(network, header, file) {
  const { language, origin, template } = network;
  const text = key => (typeof header.value(key) === "string" ? header.value(key) : null);
  const name = text("general.name") ?? file, chat = text(CHAT_TEMPLATE);
  const ends = Object.keys(template.ends).filter(token => chat?.includes(token)).map(token => template.ends[token]);
  return {
    ...network, title: name, origin: { ...origin, name, source: file, licence: text("general.license") },
    ...(language && { language: { ...language, chat_template: chat, eos: [...new Set([...language.eos ?? [], ...ends])] } }),
  };
}

/**
 * Return what the tensors of the file fill: for each tensor, in the order of the file, its name, and the entries
 * {buffer, bytes, part, places, plus} of buffers of a variant.
 */
export function entriesByTensor(template, header, variant) {
  const entries = new Map(Object.keys(template.fixed).map(name => [name, []]));
  variant.buffers.forEach(({ name, fill, bytes }, i) => {
    if (fill === undefined) return;
    if (!isWhole(fill, 0, template.fills.length - 1)) throw wrong(`buffer ${JSON.stringify(name)} has no valid fill`);
    for (const [tensor, part, places, plus = 0] of template.fills[fill]) {
      entries.set(tensor, [...entries.get(tensor) ?? [], { buffer: i, bytes, part, places, plus }]);
    }
  });
  const listed = [...entries].map(([name, list]) => {
    if (!header.tensors.has(name)) throw wrong(`template.fixed has the unknown tensor ${JSON.stringify(name)}`);
    return { name, ...header.tensors.get(name), entries: list };
  });
  return listed.sort((a, b) => a.start - b.start);
}
