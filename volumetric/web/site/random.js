// The random numbers of a generation: those of `volumetric.base.rng.generator(seed)`, which are NumPy's
// Generator(Philox(SeedSequence(seed))).random(). Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011; the seeding is O'Neill's seed_seq_fe as NumPy has it.

const POOL = 4;

/** The words of `SeedSequence(seed).generate_state(count)`. */
function seedWords(seed, count) {
  const entropy = Array.isArray(seed) ? seed : [];
  for (let rest = BigInt(entropy.length ? 0 : seed); rest > 0n || entropy.length === 0; rest >>= 32n) entropy.push(Number(rest & 0xffffffffn));
  let multiplier = 0x43b0d7e5;
  const hash = value => {
    value = (value ^ multiplier) >>> 0;
    multiplier = Math.imul(multiplier, 0x931e8875) >>> 0;
    value = Math.imul(value, multiplier) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mix = (x, y) => {
    const value = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const pool = Array.from({ length: POOL }, (_, i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < POOL; from++) {
    for (let to = 0; to < POOL; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  }
  for (const word of entropy.slice(POOL)) for (let to = 0; to < POOL; to++) pool[to] = mix(pool[to], hash(word));
  let state = 0x8b51f9dd;
  return Array.from({ length: count }, (_, i) => {
    let value = (pool[i % POOL] ^ state) >>> 0;
    state = Math.imul(state, 0x58f38ded) >>> 0;
    value = Math.imul(value, state) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  });
}

const MASK = (1n << 64n) - 1n;

const numberOf = word => Number(word >> 11n) / 2 ** 53;

/** Numbers in [0, 1) of 53 bits, one for each draw, with look-ahead. */
export class RandomStream {
  #key;
  #counter = 0n;
  #words = [];

  /** @param {number | bigint | number[]} seed or its words */
  constructor(seed) {
    const words = seedWords(seed, 4).map(BigInt);
    this.#key = [words[0] | (words[1] << 32n), words[2] | (words[3] << 32n)];
  }

  /** Return the next `count` numbers without advancing. */
  ahead(count) {
    while (this.#words.length < count) this.#more();
    return this.#words.slice(0, count).map(numberOf);
  }

  /** Return the next number, and advance. */
  take() {
    return numberOf(this.takeWord());
  }

  takeWord() {
    if (!this.#words.length) this.#more();
    return this.#words.shift();
  }

  #more() {
    this.#counter += 1n;
    let [a, b, c, d] = [this.#counter & MASK, this.#counter >> 64n, 0n, 0n];
    let [key, other] = this.#key;
    for (let round = 0; round < 10; round++) {
      const first = 0xd2e7470ee14c6c93n * a, second = 0xca5a826395121157n * c;
      [a, b, c, d] = [(second >> 64n) ^ b ^ key, second & MASK, (first >> 64n) ^ d ^ other, first & MASK];
      key = (key + 0x9e3779b97f4a7c15n) & MASK;
      other = (other + 0xbb67ae8584caa73bn) & MASK;
    }
    this.#words.push(a, b, c, d);
  }
}

/** An unpredictable seed, short enough to print and type again. */
export function freshSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}
