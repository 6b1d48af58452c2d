// Finished runs: the first line of each card, and the report or the command that writes it.

import { element } from "./elements.js";
import { commandBlock } from "./facts.js";
import { statePanel } from "./state_panel.js";

export function runsPanel() {
  const purpose = "Runs that have a card, by their first line.";
  return statePanel({ name: "runs", title: "Runs", purpose }, "/api/runs", shownRuns);
}

function shownRuns(data) {
  if (data.folder === null) return [element("p", {}, "Start the studio with --runs FOLDER to see runs.")];
  if (!data.runs.length) return [element("p", {}, `${data.folder} has no finished run.`)];
  return data.runs.map(shownRun);
}

function shownRun(run) {
  const box = element("article", { "data-run": run.name }, element("h3", {}, run.name));
  box.append(element("p", { class: run.is_private ? "private" : "open" }, run.verdict));
  if (run.has_report) {
    const address = `/runs/${encodeURIComponent(run.name)}/report`;
    box.append(element("p", {}, element("a", { href: address }, `report of ${run.name}`)));
  } else {
    box.append(commandBlock([run.command]));
  }
  return box;
}
