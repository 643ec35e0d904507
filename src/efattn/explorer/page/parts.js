// What both views have: a choice of example groups, and notes about the rows.

import { get } from "./api.js";
import { el, field, status } from "./dom.js";

export function groupChooser(card, labels, onload, onclear) {
  const name = [card.columns.group || "group"].flat().join(", ");
  const bar = el("div", { class: "controls" });
  const choice = el("select", { id: "group" }, ...labels.map((label, i) => el("option", { value: i }, label)));
  const load = async () => {
    try {
      onload(await get(`/v1/models/${encodeURIComponent(card.name)}/groups/${choice.value}`));
    } catch (error) {
      status(error.message, true);
    }
  };
  const step = (by) => {
    const to = Number(choice.value) + by;
    if (to < 0 || to >= labels.length) return;
    choice.value = String(to);
    load();
  };
  choice.addEventListener("change", load);
  if (labels.length) {
    bar.append(field(name, choice));
    bar.append(el("button", { type: "button", "aria-label": `Earlier ${name}`, onclick: () => step(-1) }, "‹"));
    bar.append(el("button", { type: "button", "aria-label": `Later ${name}`, onclick: () => step(1) }, "›"));
  }
  bar.append(el("button", { type: "button", onclick: onclear }, "Start empty"));
  bar.first = load;
  return bar;
}

export function notesOf(place, notes) {
  const told = (notes || []).filter((note) => note.important);
  place.replaceChildren(told.length ? el("ul", { class: "notes" }, ...told.map((note) => el("li", {}, note.text))) : "");
}
