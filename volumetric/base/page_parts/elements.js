// Makes elements of the page. Texts are always texts, never HTML, so that no name can be a script.

/** Return an element: h("button", {class: "play", title: "Play", onclick: f}, "text", child, …). */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return a button that shows a sign and says a word. */
export const button = (sign, label, onclick, more = {}) =>
  h("button", { type: "button", title: label, "aria-label": label, onclick, ...more }, sign);

/** Return a number as a short text: 4 digits, exponents outside of 1e-3 … 1e5. */
export function short(x) {
  if (typeof x !== "number") return String(x);
  if (!Number.isFinite(x)) return String(x);
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e6) return x.toLocaleString("en");
  return size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
}
