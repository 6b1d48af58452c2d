// What is spent and left of each budget.

import { element } from "./elements.js";
import { commandBlock, table } from "./facts.js";
import { shown } from "./numbers.js";
import { statePanel } from "./state_panel.js";

export function ledgerPanel() {
  const purpose = "What is spent and left for each purpose. Spends that are open count.";
  return statePanel({ name: "ledger", title: "Ledger", purpose }, "/api/ledger", shownLedger);
}

function shownLedger(data) {
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
