// The answer of the training panel, and how its noise follows from epsilon.

import { drawCurve } from "./curve.js";
import { element } from "./elements.js";
import { commandBlock, factList } from "./facts.js";
import { shown, shownUp } from "./numbers.js";

const EPSILONS = [0.5, 1, 2, 4, 8];
const PATIENCE_MS = 4000;

export function showTraining(answer, context) {
  const facts = [["noise multiplier", shownUp(answer.noise_multiplier), "noise_multiplier"]];
  if (answer.steps !== null) {
    facts.push(
      ["steps", shown(answer.steps, 9), "steps"],
      ["chance of a row to be in a batch", shown(answer.sampling_prob), "sampling_prob"],
    );
  }
  facts.push(["epsilon", shownUp(answer.epsilon), "epsilon"]);
  if (answer.label_epsilon !== null) {
    facts.push(
      ["for labels", shownUp(answer.label_epsilon), "label_epsilon"],
      ["for sensitive columns", shownUp(answer.sensitive_columns_epsilon), "sensitive_columns_epsilon"],
      ["if just added up", shownUp(answer.basic_epsilon), "basic_epsilon"],
    );
  }
  const curve = element("div", { class: "curves" });
  traceNoise(answer, context, curve);
  return [factList(facts), curve, commandBlock(answer.commands)];
}

// One question for each point, one after the other, until the settings change.
async function traceNoise(answer, { given, isNewest, ask }, place) {
  const here = [Number(given.epsilon), answer.noise_multiplier];
  const points = [here];
  for (const epsilon of EPSILONS) {
    if (epsilon === here[0]) continue;
    const started = performance.now();
    const { data } = await ask({ ...given, epsilon });
    if (!isNewest()) return;
    if (data) points.push([epsilon, data.noise_multiplier]);
    points.sort(([a], [b]) => a - b);
    const title = "Noise multiplier over epsilon, all else as set";
    place.replaceChildren(drawCurve({ title, xName: "epsilon", points, here, isRatio: true }));
    if (performance.now() - started > PATIENCE_MS) return;
  }
}
