// Makes the page's modules importable without a server: each gets a blob address, in the order in which they stand, so
// that every import is of a module before it.
"use strict";
(() => {
  const addresses = {};
  for (const element of document.querySelectorAll("script[data-module]")) {
    const text = element.textContent.replace(/"@page\/([^"]+)"/g, (whole, name) => JSON.stringify(addresses[name]));
    addresses[element.dataset.module] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  }
  const fail = error => {
    const text = document.createElement("pre");
    text.className = "failure";
    text.textContent = `This page cannot be shown: ${error?.message ?? error}`;
    document.body.prepend(text);
    document.documentElement.dataset.failed = "true";
  };
  import(addresses["main.js"]).then(main => main.start(addresses)).catch(error => { console.error(error); fail(error); });
})();
