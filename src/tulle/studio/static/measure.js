// The answer of the measurement panel: errors by level, and better shares.

import { element } from "./elements.js";
import { commandBlock, factList, table } from "./facts.js";
import { percent, shown } from "./numbers.js";

const WEIGHTS = ["total_weight", "campaign_weight", "geo_weight"];

export function showMeasurement(answer, { set }) {
  const rows = answer.levels.map((level) => [
    level.name, shown(level.num_slices, 9), shown(level.expected_count), percent(level.share),
    level.measured_stddev === null ? "not measured" : shown(level.measured_stddev),
    shown(level.stddev),
    level.measured_error === null ? "not measured" : percent(level.measured_error),
    percent(level.error),
  ]);
  const heads = [
    "level", "slices", "expected", "share", "noise", "noise, adding up", "error", "error, adding up",
  ];
  const shares = answer.best_shares.map(percent).join(", ");
  const use = element("button", { type: "button" }, "use these shares");
  use.addEventListener("click", () => {
    // A slider of regions cannot be 0; the others can.
    const weights = answer.best_shares.map((share) => Number((100 * share).toFixed(2)));
    set(Object.fromEntries(WEIGHTS.map((name, place) => [name, weights[place]])));
  });
  return [
    factList([
      ["error over all levels", percent(answer.error), "error"],
      ["least possible", percent(answer.best_error), "best_error"],
      ["with shares", shares, "best_shares"],
    ]),
    use,
    table(heads, rows, [1, 2, 3, 4, 5, 6, 7]),
    element("p", {}, "Noise is a standard deviation; errors are relative root mean squares."),
    commandBlock(answer.commands, { files: answer.files }),
  ];
}
