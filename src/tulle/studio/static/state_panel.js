// A panel without settings: what there is now, and a button to look again.

import { ask } from "./asking.js";
import { element } from "./elements.js";
import { section } from "./question_panel.js";

// `show(data)` gives the elements of what was found at the address.
export function statePanel(description, address, show) {
  const place = element("div", { "aria-live": "polite" }, "computing …");
  const again = element("button", { type: "button" }, "look again");
  const load = async () => {
    const { data, error } = await ask(address);
    place.replaceChildren(...(error ? [element("p", { class: "error" }, error)] : show(data)));
  };
  again.addEventListener("click", load);
  load();
  return section(description, place, again);
}
