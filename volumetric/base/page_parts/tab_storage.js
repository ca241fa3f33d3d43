// What a tab remembers until it is closed. Storage may be disabled, full, or hold data of another program: the page works without it.

/** Return what is stored under a name. */
export function stored(name, otherwise) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function store(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch { /* it is not kept */ }
}
