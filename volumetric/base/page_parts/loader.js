// Makes the page's modules importable without a server: each gets a blob address, in the order in which they stand, so
// that every import is of a module before it. Then main.js starts, with the addresses and what the page has packed.
"use strict";
(() => {
  const unpacked = async text => {
    const bytes = Uint8Array.from(atob(text.trim()), one => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  const begin = async () => {
    const archive = document.querySelector("script[data-archive]"), addresses = {};
    const standing = [...document.querySelectorAll("script[data-module]")].map(one => [one.dataset.module, one.textContent]);
    const packed = archive ? await unpacked(archive.textContent) : null;
    if (packed) document.head.append(Object.assign(document.createElement("style"), { textContent: packed.style }));
    for (const [name, text] of packed?.modules ?? standing) {
      const linked = text.replace(/"@page\/([^"]+)"/g, (whole, other) => JSON.stringify(addresses[other]));
      addresses[name] = URL.createObjectURL(new Blob([linked], { type: "text/javascript" }));
    }
    await (await import(addresses["main.js"])).start(addresses, packed);
  };
  const fail = error => {
    const text = document.createElement("pre");
    text.className = "failure";
    text.textContent = `This page cannot be shown: ${error?.message ?? error}`;
    document.body.prepend(text);
    document.documentElement.dataset.failed = "true";
  };
  begin().catch(error => { console.error(error); fail(error); });
})();
