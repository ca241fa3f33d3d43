// A button that copies a text. Pages without the clipboard's interface, as those of plain http, copy what is selected.
import { h } from "./elements.js";

const SHOWN_MS = 1500;

/** Return a button that copies what `text()` returns. */
export function copyButton(text, label = "Copy") {
  const copy = h("button", { type: "button", onclick: async () => {
    const copied = await write(text());
    copy.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => { copy.textContent = label; }, SHOWN_MS);
  } }, label);
  return copy;
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = h("textarea", { class: "unseen" }), focused = document.activeElement;
    box.value = text;
    document.body.append(box);
    box.select();
    const copied = document.execCommand("copy");
    box.remove();
    focused?.focus();
    return copied;
  }
}
