// Figures, tables and commands, as every panel shows them.

import { element } from "./elements.js";

export function factList(facts) {
  const list = element("dl");
  for (const [name, value, key = name] of facts) {
    list.append(element("div", { "data-fact": key }, element("dt", {}, name), element("dd", {}, value)));
  }
  return list;
}

// Cells are texts or elements; columns named in `numbers` stand to the right.
export function table(heads, rows, numbers = []) {
  const kind = (place) => (numbers.includes(place) ? "number" : "text");
  const head = element("tr", {}, ...heads.map((name, place) =>
    element("th", { scope: "col", class: kind(place) }, name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, place) =>
    element("td", { class: kind(place) }, cell))));
  return element(
    "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

export function commandBlock(commands, { files = {}, downloads = {} } = {}) {
  const block = element("div", { class: "commands" }, element("h3", {}, "The same on the command line"));
  for (const [name, address] of Object.entries(downloads)) {
    block.append(element("p", {}, element("a", { href: address, download: name }, `Save ${name}`), " first."));
  }
  for (const [name, text] of Object.entries(files)) {
    const details = element("details", {}, element("summary", {}, `${name}, to be saved first`));
    details.append(copied(text, name));
    block.append(details);
  }
  for (const command of commands) block.append(copied(command, "command"));
  return block;
}

function copied(text, what) {
  const button = element("button", { type: "button", "aria-label": `copy ${what}` }, "copy");
  const code = element("pre", { tabindex: "0" }, text);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
  });
  return element("div", { class: "command" }, code, button);
}
