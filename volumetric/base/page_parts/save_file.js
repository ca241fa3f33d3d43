// Offers what a page has made as a file.
import { h } from "./elements.js";

/** Let the browser save bytes, a text or a Blob under a name. */
export function saveFile(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
