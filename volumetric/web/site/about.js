// What the network is, who made it, and what it runs on.
import { h } from "./elements.js";

/** Return the line about the GPU: adapter, variant and features. */
export function deviceLine({ device, variant }) {
  const named = [...new Set([device.vendor, device.architecture, device.description].filter(Boolean))].join(" ") || "GPU";
  const features = ["shader-f16", "subgroups"].filter(name => device.features.includes(name)).join(", ");
  return [device.software ? `${named}, in software` : named, variant && `kernels: ${variant}`, features && `features: ${features}`].filter(Boolean).join(" · ");
}

/** Return a list of facts about the network: origin, licence, size. */
export function about(network) {
  const { origin, weightBytes: bytes, kind, ui } = network;
  const facts = [
    ["Network", origin?.name], ["Made by", origin?.author], ["From", origin?.source], ["Evolved for", ui?.evolved],
    ["Licence of the weights", origin?.licence ?? "not stated"],
    ["Weights", bytes ? size(bytes) : null], ["Kind", kind], ["Made with", origin?.engine],
  ];
  const rows = facts.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]);
  return h("details", { class: "about" },
    h("summary", {}, "About this network"),
    h("dl", {}, rows),
    origin?.licence ? null : h("p", { class: "dim" }, "Ask whoever made this page before you use the weights or pass them on. An export states their licence with --licence."),
    h("p", { class: "dim" }, "It runs on your GPU, in this page. Nothing that you enter leaves it."));
}

const size = bytes => (bytes < 1e5 ? `${bytes.toLocaleString("en")} bytes` : `${(bytes / 1e6).toFixed(1)} MB`);
