// Where the page's network is: in the page itself, or in the folder around it.

/** Return what `load` takes. */
export function networkSource() {
  const inline = document.getElementById("network");
  if (!inline) return new URL("./", document.baseURI).href;
  const files = document.getElementById("files");
  return {
    json: async () => inline.textContent,
    piece: async i => document.querySelector(`script[data-blob="${Number(i)}"]`)?.textContent ?? "",
    file: async name => {
      const texts = JSON.parse(files?.textContent ?? "{}");
      if (!Object.hasOwn(texts, name)) throw new Error(`The page has no ${name}.`);
      return texts[name];
    },
  };
}
