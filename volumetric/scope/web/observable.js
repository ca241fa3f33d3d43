// Values that views share, and the part of them that a link holds.

/** Return {value, set(value), subscribe(listener)}; a listener gets (value, previous) and is called on every change. */
export function observable(value) {
  const listeners = new Set();
  return {
    get value() { return value; },
    set(next) {
      if (Object.is(next, value)) return;
      const previous = value;
      value = next;
      for (const listener of [...listeners]) listener(value, previous);
    },
    subscribe(listener) { listeners.add(listener); return () => listeners.delete(listener); },
  };
}

/** Return {get(key, fallback), set(key, value), address()}: texts kept behind the "#" of the page's address. */
export function linkState() {
  const read = () => new URLSearchParams(location.hash.slice(1));
  let entries = read(), waiting = 0;
  const write = () => {
    waiting = 0;
    try {
      history.replaceState(null, "", `#${entries}`);
    } catch {
      // a frame of a notebook has no address of its own
    }
  };
  addEventListener("hashchange", () => { entries = read(); });
  return {
    get: (key, fallback = null) => entries.get(key) ?? fallback,
    set(key, value) {
      if (value === null || value === undefined || value === "") entries.delete(key); else entries.set(key, String(value));
      waiting ||= setTimeout(write, 200);
    },
    address: () => `${location.href.split("#")[0]}#${entries}`,
  };
}
