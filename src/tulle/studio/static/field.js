// One setting: a slider and a number that follow each other, or a choice, with its error beside it.

import { element } from "./elements.js";

const RATIO_STEPS = 200;
const RATIO_DIGITS = 3;

export function makeField(panel, description, changed) {
  return "choices" in description
    ? makeChoice(panel, description, changed)
    : makeNumber(panel, description, changed);
}

function makeChoice(panel, description, changed) {
  const id = `${panel}-${description.name}`;
  const choice = element("select", { id, "aria-describedby": `${id}-error` });
  for (const word of description.choices) choice.append(element("option", { value: word }, word));
  choice.addEventListener("input", changed);
  return field(description, id, [choice], [choice], {
    value: () => choice.value,
    set: (word) => { choice.value = word; },
  });
}

function makeNumber(panel, description, changed) {
  const id = `${panel}-${description.name}`;
  const scale = scaleOf(description);
  const number = element("input", {
    id, type: "number", min: description.least, max: description.most, step: "any",
    "aria-describedby": `${id}-error`,
  });
  const slider = element("input", {
    id: `${id}-slider`, type: "range", min: scale.least, max: scale.most, step: scale.step,
    "aria-label": `${description.label}, slider`, "aria-describedby": `${id}-error`,
  });
  const place = () => {
    const value = Number(number.value);
    if (number.value !== "" && Number.isFinite(value)) slider.value = scale.placeOf(value);
    slider.setAttribute("aria-valuetext", number.value);
  };
  slider.addEventListener("input", () => {
    number.value = scale.valueAt(Number(slider.value));
    slider.setAttribute("aria-valuetext", number.value);
    changed();
  });
  number.addEventListener("input", () => { place(); changed(); });
  const made = field(description, id, [slider, number], [number, slider], {
    value: () => number.value,
    set: (value) => { number.value = value; place(); },
  });
  made.set(description.default);
  return made;
}

function field(description, id, controls, marked, access) {
  const error = element("p", { class: "error", id: `${id}-error`, role: "status" });
  const box = element(
    "div", { class: "field", "data-field": description.name },
    element("label", { for: id }, description.label),
    element("div", { class: "controls" }, ...controls),
    error,
  );
  return {
    ...access,
    name: description.name,
    onlyIf: description.only_if ?? null,
    box,
    setError(message) {
      error.textContent = message ?? "";
      for (const control of marked) {
        if (message) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
      }
    },
  };
}

// A slider with a step moves evenly; one without moves by equal ratios.
function scaleOf({ least, most, step, is_whole: isWhole }) {
  if (step !== null) {
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    return {
      least, most, step, placeOf: (value) => value,
      valueAt: (place) => Number(place.toFixed(digits)),
    };
  }
  const width = Math.log(most / least);
  return {
    least: 0, most: RATIO_STEPS, step: 1,
    placeOf: (value) => (value > 0 ? (RATIO_STEPS * Math.log(value / least)) / width : 0),
    valueAt: (place) => {
      const value = Number((least * Math.exp((width * place) / RATIO_STEPS)).toPrecision(RATIO_DIGITS));
      const within = Math.min(most, Math.max(least, value));
      return isWhole ? Math.round(within) : within;
    },
  };
}
