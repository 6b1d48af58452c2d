// The answer of the labels panel: chances of a flip, and noise by mechanism.

import { element } from "./elements.js";
import { commandBlock, factList, table } from "./facts.js";
import { percent, shown } from "./numbers.js";

export function showLabels(answer) {
  const best = answer.mechanisms[0];
  const facts = [["variance of a label", shown(best.variance), "variance"]];
  if (answer.truth_prob !== null) {
    facts.unshift(["chance of a wrong label", percent(answer.flip_prob), "flip_prob"]);
    facts.push(["chance of the truth", percent(answer.truth_prob), "truth_prob"]);
  }
  const rows = answer.mechanisms.map((one) => [
    one.name, shown(one.variance), shown(one.bias, 2), shown(one.mean_squared_error),
  ]);
  return [
    factList(facts),
    table(["mechanism", "variance", "bias", "mean squared error"], rows, [1, 2, 3]),
    ...answer.left_out.map((reason) => element("p", {}, `Left out: ${reason}`)),
    commandBlock(answer.commands),
  ];
}
