// Random streams of children: SplitMix64, the numbers of `volumetric/devices/cpu/kernels/splitmix64.py`.

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

function mixed(z) {
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** The stream `name` (a whole number) of a key (a bigint). */
export class Stream {
  #state;

  constructor(key, name) {
    this.#state = mixed((key + mixed((BigInt(name) * GOLDEN + GOLDEN) & MASK)) & MASK);
  }

  /** A number in [0, 1). */
  uniform() {
    this.#state = (this.#state + GOLDEN) & MASK;
    return Number(mixed(this.#state) >> 11n) / 2 ** 53;
  }

  /** A whole number in [0, bound). */
  below(bound) {
    return Math.floor(this.uniform() * bound);
  }

  /** A standard normal number (Box and Muller, 1958). */
  normal() {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }
}
