// A text as its tokens, one button each; the arrow keys walk through it.
import { h } from "../elements.js";

/**
 * Return {element, paint(shades, marked), choose(i or null), destroy()}.
 *
 * options: {label, onHover(i or null, event), onPick(i or null)}. paint takes a number 0 … 1 for each token, or null, and the token that is marked.
 */
export function tokenLine(tokens, options = {}) {
  const element = h("div", { class: "tokens", role: "toolbar", "aria-label": options.label ?? "Tokens" });
  let chosen = null;
  const buttons = tokens.map((text, i) =>
    h(
      "button",
      {
        type: "button",
        class: "token",
        tabindex: i ? -1 : 0,
        "aria-pressed": "false",
        "aria-label": `token ${i}: ${text}`,
        "data-token": i,
        onpointerenter(event) {
          options.onHover?.(i, event);
        },
        onpointerleave(event) {
          options.onHover?.(null, event);
        },
        onfocus(event) {
          if (event.target.matches(":focus-visible")) options.onHover?.(i, event);
        },
        onblur(event) {
          options.onHover?.(null, event);
        },
        onclick() {
          choose(chosen === i ? null : i);
          options.onPick?.(chosen);
        },
      },
      text,
    ),
  );
  element.append(...buttons);
  element.addEventListener("keydown", event => {
    const at = buttons.indexOf(document.activeElement),
      step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at < 0 || !step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = buttons[Math.max(0, Math.min(buttons.length - 1, at + step))];
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  function choose(i) {
    chosen = i;
    buttons.forEach((one, k) => one.setAttribute("aria-pressed", String(k === i)));
  }
  return {
    element,
    choose,
    paint(shades, marked) {
      buttons.forEach((one, i) => {
        one.style.setProperty("--shade", shades ? `${(100 * Math.max(0, Math.min(1, shades[i]))).toFixed(1)}%` : "0%");
        one.classList.toggle("marked", i === marked);
      });
    },
    destroy() {
      element.remove();
    },
  };
}
