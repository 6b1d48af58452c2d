// The answer of the selection panel: captured gain over list length, cutoff and epsilon.

import { drawCurve } from "./curve.js";
import { element } from "./elements.js";
import { commandBlock, factList } from "./facts.js";
import { percent, shown } from "./numbers.js";

export function showSelection(answer, { given }) {
  const [length, gamma, epsilon] = ["num_finalists", "gamma", "epsilon"].map((name) => Number(given[name]));
  const curve = (title, xName, points, here) => drawCurve({ title, xName, points, here, isShare: true });
  return [
    factList([
      ["captured at best", percent(answer.best), "best"],
      [`captured with k = ${length}`, percent(answer.by_finalists), "by_finalists"],
      [`captured with gamma = ${gamma}`, percent(answer.by_gamma), "by_gamma"],
      ["personalisation could add", percent(answer.ideal_welfare / answer.baseline_welfare - 1), "gain"],
      ["welfare of an auction, not personalised", shown(answer.baseline_welfare), "baseline_welfare"],
    ]),
    element("p", {}, `Recommended: ${answer.recommended}.`),
    element(
      "div", { class: "curves" },
      curve("Captured gain over list length", "k", answer.finalist_curve, [length, answer.by_finalists]),
      curve("Captured gain over the cutoff", "gamma", answer.gamma_curve, [gamma, answer.by_gamma]),
      curve("Captured gain at best over epsilon", "epsilon", answer.epsilon_curve, [epsilon, answer.best]),
    ),
    commandBlock(answer.commands, { downloads: answer.downloads }),
  ];
}
