// Puts the page together.

import { ask } from "./asking.js";
import { element } from "./elements.js";
import { showLabels } from "./labels.js";
import { ledgerPanel } from "./ledger.js";
import { showMeasurement } from "./measure.js";
import { questionPanel } from "./question_panel.js";
import { runsPanel } from "./runs.js";
import { showSelection } from "./select.js";
import { showTraining } from "./train.js";

const SHOWN = { train: showTraining, measure: showMeasurement, select: showSelection, labels: showLabels };

const place = document.getElementById("panels");
const { data, error } = await ask("/api/panels");
if (error) place.append(element("p", { class: "error", role: "alert" }, error));
else {
  for (const panel of data) place.append(questionPanel(panel, SHOWN[panel.name]));
  place.append(ledgerPanel(), runsPanel());
}
