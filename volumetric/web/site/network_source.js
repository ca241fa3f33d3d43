// Where the page's network is: in the page itself, or in the folder around it.

/** Return what `load` takes. `texts` has network.json and other files as text, if the page is one file. */
export function networkSource(texts) {
  if (!texts) return new URL("./", document.baseURI).href;
  return {
    json: async () => texts.network,
    piece: async i => document.querySelector(`script[data-blob="${Number(i)}"]`)?.textContent ?? "",
    file: async name => {
      const files = JSON.parse(texts.files);
      if (!Object.hasOwn(files, name)) throw new Error(`The page has no ${name}.`);
      return files[name];
    },
  };
}
