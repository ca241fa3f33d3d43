// The element that a scene is drawn on.
import { WebGLRenderer } from "../vendor/three.min.js";

/** Return {canvas, renderer}; `fine`: with smooth outlines. Raises an error with a sentence where a browser cannot draw in space. */
export function sceneCanvas(count, fine) {
  const canvas = document.createElement("canvas"),
    options = { antialias: fine, preserveDrawingBuffer: true, powerPreference: "high-performance" };
  if (!canvas.getContext("webgl2", options)) {
    throw new Error("this browser does not draw in space: it has no WebGL 2, or no more room for it; close other pages with scenes");
  }
  Object.assign(canvas, { tabIndex: 0, className: "scene-canvas" });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "scene in space");
  const keys = "Arrows turn, plus and minus zoom, F shows all, [ and ] go through the neighbours of the chosen node.";
  canvas.setAttribute("aria-label", `${count.toLocaleString("en")} nodes. ${keys}`);
  return { canvas, renderer: new WebGLRenderer({ canvas, ...options }) };
}

/** Whether the browser draws without a GPU, where smooth outlines take half of the time. */
export function drawsOnProcessor() {
  const gl = document.createElement("canvas").getContext("webgl2"),
    names = gl?.getExtension("WEBGL_debug_renderer_info");
  const name = names ? gl.getParameter(names.UNMASKED_RENDERER_WEBGL) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(name);
}
