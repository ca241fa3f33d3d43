// Texts of quantities: bytes, counts and shares.

/** Return bytes in binary units: "85.5 MiB". */
export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return unit === "B" ? `${Math.round(count)} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} GiB`;
}

/** Return a count with three digits: "134 M". */
export function count(number) {
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return String(Math.round(number));
}

/** Return a share as per cent: "12.3 %", "0.04 %". */
export function percent(share) {
  if (!Number.isFinite(share)) return "";
  const value = 100 * share;
  return `${value === 0 ? "0" : Math.abs(value) < 0.1 ? Number(value.toPrecision(1)) : value.toFixed(1)} %`;
}
