// What is spent and left of each budget.

import { ask } from "./asking.js";
import { element } from "./elements.js";
import { commandBlock, table } from "./facts.js";
import { section } from "./question_panel.js";
import { shown } from "./numbers.js";

export function ledgerPanel() {
  const place = element("div", { "aria-live": "polite" }, "computing …");
  const again = element("button", { type: "button" }, "look again");
  const load = async () => place.replaceChildren(...shownLedger(await ask("/api/ledger")));
  again.addEventListener("click", load);
  load();
  const purpose = "What is spent and left for each purpose. Spends that are open count.";
  return section({ name: "ledger", title: "Ledger", purpose }, place, again);
}

function shownLedger({ data, error }) {
  if (error) return [element("p", { class: "error" }, error)];
  if (data.name === null) return [element("p", {}, "Start the studio with --ledger FILE to see budgets.")];
  if (!data.budgets.length) return [element("p", {}, `${data.name} has no budget yet.`), commandBlock(data.commands)];
  const rows = data.budgets.map((budget) => [
    budget.name,
    budget.purpose ?? "every purpose",
    budget.window === null ? budget.unit : `${budget.unit}, ${budget.window.map((day) => day.slice(0, 10)).join(" to ")}`,
    shown(budget.epsilon),
    budget.spent_epsilon === null ? "no limit holds" : shown(budget.spent_epsilon),
    shown(budget.left_epsilon),
    used(budget),
    budget.num_open ? `${budget.num_spends}, ${budget.num_open} open` : String(budget.num_spends),
  ]);
  const heads = ["budget", "purpose", "unit", "epsilon", "spent", "left", "used", "spends"];
  return [table(heads, rows, [3, 4, 5]), commandBlock(data.commands)];
}

function used(budget) {
  const share = 1 - budget.left_epsilon / budget.epsilon;
  return element("meter", {
    min: 0, max: 1, value: share, low: 0.6, high: 0.9, optimum: 0,
    "aria-label": `${Math.round(100 * share)}% of ${budget.name} is used`,
  });
}
