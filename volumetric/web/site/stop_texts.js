// Stop texts: end before one appears, and never return a part of one.

export class StopMatcher {
  #held = "";

  constructor(stops) {
    this.stops = stops;
  }

  /** Add text; return [text that may be shown, whether a stop text has appeared]. */
  push(text) {
    if (!this.stops.length) return [text, false];
    this.#held += text;
    const places = this.stops.map(stop => this.#held.indexOf(stop)).filter(at => at >= 0);
    if (places.length) {
      const shown = this.#held.slice(0, Math.min(...places));
      this.#held = "";
      return [shown, true];
    }
    const cut = this.#held.length - this.#undecided();
    const shown = this.#held.slice(0, cut);
    this.#held = this.#held.slice(cut);
    return [shown, false];
  }

  flush() {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }

  /** Length of the longest end of the text that may become a stop text. */
  #undecided() {
    const longest = Math.min(Math.max(...this.stops.map(stop => stop.length)) - 1, this.#held.length);
    for (let length = longest; length > 0; length--) {
      if (this.stops.some(stop => stop.startsWith(this.#held.slice(-length)))) return length;
    }
    return 0;
  }
}
