// A panel that asks: settings on one side, the answer to them on the other.

import { answerPath, ask, newestOnly } from "./asking.js";
import { element } from "./elements.js";
import { makeField } from "./field.js";

// `show(answer, context)` gives the elements of an answer.
export function questionPanel(description, show) {
  const state = element("p", { class: "state" });
  const problem = element("p", { class: "error", role: "alert" });
  const found = element("div", { class: "found" });
  const answer = element("div", { class: "answer", "aria-live": "polite", "aria-busy": "true" }, state, problem, found);
  const fields = description.fields.map((one) => makeField(description.name, one, changed));
  const settings = () => Object.fromEntries(fields.map((field) => [field.name, field.value()]));
  const request = newestOnly(async (given, isNewest) => {
    const reply = await ask(answerPath(description.name, given));
    if (!isNewest()) return;
    settle(reply);
    if (reply.data) {
      const context = { given, isNewest, set, ask: (other) => ask(answerPath(description.name, other)) };
      found.replaceChildren(...show(reply.data, context));
    }
  });

  function settle({ error = "", field: name = null }) {
    const beside = fields.find((field) => field.name === name && !field.box.hidden);
    for (const field of fields) field.setError(field === beside ? error : null);
    problem.textContent = beside ? "" : error;
    state.textContent = error ? "No answer for these settings; the figures are older." : "";
    found.hidden = Boolean(error) && !found.hasChildNodes();
    answer.setAttribute("aria-busy", "false");
  }

  function changed() {
    const given = settings();
    for (const field of fields) {
      const [choice, ...values] = field.onlyIf ?? [];
      field.box.hidden = field.onlyIf !== null && !values.includes(given[choice]);
    }
    state.textContent = "computing …";
    answer.setAttribute("aria-busy", "true");
    request(settings);
  }

  function set(values) {
    for (const field of fields) if (field.name in values) field.set(values[field.name]);
    changed();
  }

  changed();
  const form = element("form", {}, ...fields.map((field) => field.box));
  form.addEventListener("submit", (event) => event.preventDefault());
  return section(description, element("div", { class: "inside" }, form, answer));
}

export function section({ name, title, purpose }, ...inside) {
  return element(
    "section", { class: "panel", id: name, "aria-labelledby": `${name}-title` },
    element("h2", { id: `${name}-title` }, title), element("p", {}, purpose), ...inside,
  );
}
