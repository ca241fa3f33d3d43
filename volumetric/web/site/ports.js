// Ports: rows of numbers between the caller and the buffers.

import { InputError } from "./errors.js";

const ARRAYS = { float32: Float32Array, int32: Int32Array };

export const widthOf = port => port.shape.reduce((a, b) => a * b, 1);

/** Inputs by port; an array alone is that of the only port. */
export function inputsByPort(ports, inputs) {
  const names = Object.keys(ports);
  const alone = isList(inputs);
  if (alone && names.length !== 1) throw new InputError(`The network has ${names.length} inputs: ${names.join(", ")}.`, "Pass an object with an array for each.");
  const named = alone ? { [names[0]]: inputs } : inputs ?? {};
  if (typeof named !== "object") throw new InputError("Inputs are an array of numbers, or an object with an array for each.");
  for (const name of Object.keys(named)) {
    if (!Object.hasOwn(ports, name)) throw new InputError(`The network has no input ${JSON.stringify(name)}.`, `It has: ${names.join(", ") || "none"}.`);
  }
  return new Map(names.filter(name => named[name] !== undefined).map(name => [name, numbersOf(ports[name], name, named[name])]));
}

const isList = value => Array.isArray(value) || (ArrayBuffer.isView(value) && value.length !== undefined);

function numbersOf(port, name, values) {
  if (!isList(values)) throw new InputError(`Input ${name} must be an array of numbers.`);
  const array = Array.isArray(values) ? flatNumbers(port, name, values) : values;
  const numbers = array instanceof ARRAYS[port.dtype] ? array : ARRAYS[port.dtype].from(array, Number);
  const odd = port.dtype === "int32" ? array.findIndex((value, i) => Number(value) !== numbers[i]) : -1;
  if (odd >= 0) throw new InputError(`Input ${name} has ${array[odd]}; it takes whole numbers of 32 bits.`);
  if (!numbers.length || numbers.length % widthOf(port)) {
    throw new InputError(`Input ${name} has ${numbers.length} numbers, but a row has ${widthOf(port)} (${port.shape.join(" × ")}).`);
  }
  return numbers;
}

/** Numbers of an array of numbers, or of rows, each flat or nested like the port. */
function flatNumbers(port, name, values) {
  const sizes = [], numbers = [];
  for (let one = values; isList(one) && sizes.length < 9; one = one[0]) sizes.push(one.length);
  const fits = [sizes, sizes.slice(1)].some(one => one.join() === port.shape.join() || one.join() === String(widthOf(port)));
  const walk = (list, depth) => {
    if (list.length !== sizes[depth] || !(fits || sizes.length === 1)) throw new InputError(`Input ${name} is not an array of rows of ${port.shape.join(" × ")}.`, "Pass rows of that shape, or all numbers in one array.");
    for (const one of list) {
      if (isList(one)) walk(one, depth + 1);
      else if (typeof one === "number" && depth === sizes.length - 1) numbers.push(one);
      else throw new InputError(`Input ${name} must hold only numbers.`);
    }
  };
  walk(values, 0);
  return numbers;
}

/** How many rows the inputs have; they must agree. */
export function rowsOf(ports, inputs) {
  const counts = [...inputs].map(([name, numbers]) => numbers.length / widthOf(ports[name]));
  if (!counts.length) throw new InputError("There is no input.", `Pass ${Object.keys(ports).join(", ")}.`);
  if (counts.some(count => count !== counts[0])) throw new InputError("The inputs have different numbers of rows.", [...inputs.keys()].map((name, i) => `${name}: ${counts[i]}`).join(", ") + ".");
  return counts[0];
}

/** Rows `first` to `first + rows` as they lie in the buffer; those beyond the numbers are zeros. */
export function packedRows(port, numbers, first, rows) {
  const width = widthOf(port), stride = port.stride / 4;
  const part = standardised(port, numbers.subarray(first * width, (first + rows) * width));
  if (stride === width && part.length === rows * width) return part;
  const packed = new ARRAYS[port.dtype](rows * stride);
  for (let row = 0; row * width < part.length; row++) packed.set(part.subarray(row * width, (row + 1) * width), row * stride);
  return packed;
}

/** (x − mean) / deviation of each feature, if the network wants that. */
function standardised({ standardise }, numbers) {
  if (!standardise) return numbers;
  const { mean, deviation } = standardise;
  return numbers.map((value, i) => (value - mean[i % mean.length]) / deviation[i % mean.length]);
}

/** Numbers of rows that were read from the buffer. */
export function unpackedRows(port, data, rows) {
  const width = widthOf(port), stride = port.stride / 4;
  const packed = new ARRAYS[port.dtype](data);
  if (stride === width) return packed.subarray(0, rows * width);
  const numbers = new ARRAYS[port.dtype](rows * width);
  for (let row = 0; row < rows; row++) numbers.set(packed.subarray(row * stride, row * stride + width), row * width);
  return numbers;
}
