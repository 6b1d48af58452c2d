// Finished runs: the first line of each card, and the report or the command that writes it.

import { ask } from "./asking.js";
import { element } from "./elements.js";
import { commandBlock } from "./facts.js";
import { section } from "./question_panel.js";

export function runsPanel() {
  const place = element("div", { "aria-live": "polite" }, "computing …");
  const again = element("button", { type: "button" }, "look again");
  const load = async () => place.replaceChildren(...shownRuns(await ask("/api/runs")));
  again.addEventListener("click", load);
  load();
  const purpose = "Runs that have a card, by their first line.";
  return section({ name: "runs", title: "Runs", purpose }, place, again);
}

function shownRuns({ data, error }) {
  if (error) return [element("p", { class: "error" }, error)];
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
