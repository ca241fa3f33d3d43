// How a token is drawn on the GPU: the words that `volumetric.devices.gpu.kernels.token_draw` makes, here with BigInt in
// place of fractions. Integer weights and 64-bit sums give the token that float64 gives on the host.

export const NUMBERS = 128;
export const ROW_WORDS = 4 * (3 + NUMBERS / 2);
export const TABLE_WORDS = 64;
export const AHEAD = NUMBERS / 2;
const BY_WEIGHT = 2;
/** The row is always left to the host. */
export const WITHHELD = 4;
const MOST_TOP_K = 256;
const LN2 = [6931471805599453094172321214581765680755n, 10n ** 40n];
const FINITE = 0x7f7fffff;

/** A double as [numerator, denominator]. */
function fraction(value) {
  let exponent = 0;
  while (!Number.isInteger(value)) {
    value *= 2;
    exponent++;
  }
  return [BigInt(value), 1n << BigInt(exponent)];
}

const bitLength = whole => whole.toString(2).length;

const scaled = ([n, d], exponent) => (exponent >= 0 ? [n << BigInt(exponent), d] : [n, d << BigInt(-exponent)]);

function rounded(value) {
  const [n, d] = value;
  return (2n * n + d) / (2n * d);
}

/** The least n for which 2**n is above a positive fraction, when both are rounded to 40 bits. */
function exponentOf(value) {
  const [n, d] = value;
  let exponent = bitLength(n) - bitLength(d);
  const [a, b] = scaled(value, -exponent);
  if (a >= b) exponent++;
  return rounded(scaled(value, 40 - exponent)) >= 1n << 40n ? exponent + 1 : exponent;
}

/** The nearest double to a positive fraction. */
function doubleOf(value) {
  const shift = 70 - (bitLength(value[0]) - bitLength(value[1]));
  const [n, d] = scaled(value, shift);
  const whole = n / d;
  return Number(whole | (whole * d === n ? 0n : 1n)) * 2 ** -shift;
}

const floatBits = new DataView(new ArrayBuffer(4));
const bitsOf = value => (floatBits.setFloat32(0, value), floatBits.getUint32(0));
const floatOf = bits => (floatBits.setUint32(0, bits), floatBits.getFloat32(0));

/** Bits of the largest depth whose weight is `minP` or more; null if float64 may decide otherwise. */
function minPDepth(temperature, minP) {
  if (minP <= 0) return FINITE;
  if (minP >= 1) return 0;
  const bits = bitsOf(-temperature * Math.log(minP));
  for (let at = bits + 2; at > bits - 3; at--) {
    const weight = Math.exp(-floatOf(at) / temperature);
    if (Math.abs(weight - minP) <= 1e-12 * minP) return null;
    if (weight > minP) return at;
  }
  return null;
}

/** The 12 words of a row's plan; null if the host must draw. */
export function drawPlan({ temperature, topK, topP, minP }, width) {
  const words = new Uint32Array(12);
  if (temperature === 0) return words;
  const some = topK > 0 && topK < width;
  const deepest = minPDepth(temperature, minP);
  if (temperature < 0.01 || temperature > 100 || (some && topK > MOST_TOP_K) || deepest === null) return null;
  const [n, d] = fraction(temperature);
  const perScore = [d * LN2[1], n * LN2[0]];
  const shift = 40 - exponentOf(perScore);
  const factor = rounded(scaled(perScore, shift));
  const [p, q] = fraction(topP);
  const part = topP < 1 ? (p << 64n) / q : 0n;
  words.set([1 + (topP < 1 ? BY_WEIGHT : 0), Number(factor >> 8n), Number(factor & 255n), shift + 118]);
  words.set([some ? topK : 0, Number(part >> 32n), Number(part & 0xffffffffn), deepest], 4);
  words[8] = bitsOf(some ? 32 : 64 * doubleOf(perScore));
  return words;
}

/** A plan that leaves every draw to the host. */
export function withheldPlan() {
  return Uint32Array.of(WITHHELD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/** The kind of draw of a plan: "greedy", "weight" (top-p), "count" (top-k), or "plain". */
export function drawKind(plan) {
  if (!plan[0] || plan[0] === WITHHELD) return plan[0] ? "plain" : "greedy";
  if (plan[4] > 0) return "count";
  return plan[0] & BY_WEIGHT ? "weight" : "plain";
}

/** 2**(-i / 64) in units of 2**-32, the first one minus its last digit. */
export function drawTable() {
  return Uint32Array.from({ length: TABLE_WORDS }, (_, i) => Math.min(Math.round(2 ** (-i / 64) * 2 ** 32), 2 ** 32 - 1));
}

/** Put the numbers of the draws at `position` and after it where they are read: as multiples of 2**-64. */
export function writeNumbers(words, numbers, position) {
  numbers.forEach((value, i) => {
    const at = 12 + 2 * ((position + i) % NUMBERS);
    const whole = BigInt(value * 2 ** 53) << 11n;
    words[at] = Number(whole >> 32n);
    words[at + 1] = Number(whole & 0xffffffffn);
  });
}
