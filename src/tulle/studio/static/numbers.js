// Numbers on the page, rounded to the side on which what is said of them stays true.

const DIGITS = 6;
const SLACK = 1e-12;

export function shown(value, digits = 4) {
  if (value === null) return "none";
  return grouped(Number(value.toPrecision(digits)));
}

// Noise that suffices, an epsilon that is not exceeded.
export function shownUp(value) {
  if (value === null || value === 0) return shown(value);
  const least = value - Math.abs(value) * SLACK;
  let rounded = Number(value.toPrecision(DIGITS));
  if (rounded < least) {
    const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - DIGITS + 1);
    rounded = Number((rounded + step).toPrecision(DIGITS));
  }
  return grouped(rounded);
}

export function percent(value) {
  return value === null ? "none" : `${Number((100 * value).toPrecision(3))}%`;
}

function grouped(value) {
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) {
    return value.toExponential().replace("e+", "e");
  }
  return value.toLocaleString("en", { maximumFractionDigits: 10 });
}
