// The GPU: the adapter, the variant of the network for it, and the device.

import { DeviceLimitError, NoWebGPUError } from "./errors.js";
import { imported } from "./lazy_modules.js";

const BROWSERS = "Chrome and Edge have it from version 113, Safari from 26, Firefox from 141; or turn on hardware acceleration in the settings.";

/** Return an adapter. Raises `NoWebGPUError`. */
export async function requestAdapter() {
  if (!globalThis.navigator?.gpu) {
    if (globalThis.isSecureContext === false) {
      throw new NoWebGPUError("WebGPU is only available to pages of https:, of localhost, and of files.", "Open this page by https.");
    }
    throw new NoWebGPUError("This browser has no WebGPU, which computes the network.", BROWSERS);
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" }) ?? await navigator.gpu.requestAdapter();
  if (!adapter) throw new NoWebGPUError("This browser has WebGPU, but offers no GPU to it.", "Turn on hardware acceleration in its settings, or try Chrome or Edge.");
  return adapter;
}

/** What variants for adapters that run on the CPU need; WebGPU has no feature of this name. */
const FALLBACK = "fallback-adapter";

const isFallback = adapter => adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter === true;

/** What a page tells of the GPU. */
export function adapterInfo(adapter, hidden = []) {
  const { vendor = "", architecture = "", description = "", subgroupMinSize = 0, subgroupMaxSize = 0 } = adapter.info ?? {};
  const features = [...adapter.features].filter(name => !hidden.includes(name)).sort();
  return { vendor, architecture, description, software: isFallback(adapter), subgroups: [subgroupMinSize, subgroupMaxSize], features };
}

/** Return the variant for an adapter, and a device with what it needs. */
export async function openVariant(variants, adapter, hidden, addresses) {
  const variant = chooseVariant(variants, adapter, hidden);
  const { subgroup = 0 } = variant.needs ?? {};
  const device = await requestDevice(adapter, variant.needs);
  if (!subgroup || await (await imported("lane_probe.js", addresses)).lanesAreNeighbours(device, subgroup)) return { variant, device };
  device.destroy();
  return openVariant(variants, await requestAdapter(), [...hidden, "subgroups"], addresses); // an adapter opens one device
}

/** The first variant whose needs the adapter meets; features named in `hidden` count as absent. */
function chooseVariant(variants, adapter, hidden = []) {
  const missing = variants.map(({ needs = {} }) => lacks(needs, adapter, hidden));
  const at = missing.findIndex(one => !one);
  if (at < 0) throw new DeviceLimitError(`This GPU cannot run the network: it lacks ${missing.at(-1)}.`, "Try a computer with a larger GPU, or export a smaller network.");
  return variants[at];
}

/** What an adapter lacks of some needs, as text; empty if nothing. */
function lacks({ features = [], subgroup = 0, limits = {} }, adapter, hidden) {
  const absent = features.find(name => hidden.includes(name) || !(name === FALLBACK ? isFallback(adapter) : adapter.features.has(name)));
  if (absent) return absent;
  if (subgroup && !(adapter.info?.subgroupMinSize >= subgroup)) return `subgroups of ${subgroup}`;
  const low = Object.entries(limits).find(([name, value]) => !(adapter.limits[name] >= value));
  return low ? `${low[0]} of ${low[1]} (it has ${adapter.limits[low[0]] ?? "none"})` : "";
}

/** Return a device with what a variant needs. */
async function requestDevice(adapter, { features = [], limits = {} } = {}) {
  try {
    return await adapter.requestDevice({ requiredFeatures: features.filter(name => name !== FALLBACK), requiredLimits: limits });
  } catch (error) {
    throw new DeviceLimitError(`The GPU does not start: ${error.message}.`, "Close other pages that use the GPU, and load this one again.");
  }
}
