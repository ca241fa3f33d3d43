// One tooltip for the page.
import { h } from "./elements.js";

/** Return {show(x, y, content), hide()}; content is a text or an element, x and y are of the window. */
export function makeTooltip(parent) {
  const box = h("div", { class: "tooltip", role: "tooltip", hidden: true });
  parent.append(box);
  return {
    show(x, y, content) {
      box.replaceChildren(content);
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
      box.style.top = `${Math.max(4, y + 18 + height > innerHeight ? y - height - 10 : y + 18)}px`;
    },
    hide() { box.hidden = true; },
  };
}
