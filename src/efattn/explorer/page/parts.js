// What both views have: a choice of example groups, and notes about the rows.

import { ask, get } from "./api.js";
import { bars } from "./charts.js";
import { el, field, number, status } from "./dom.js";

export function groupChooser(card, labels, onload, onclear) {
  const name = [card.columns.group || "group"].flat().join(", ");
  const bar = el("div", { class: "controls" });
  const choice = el("select", { id: "group" }, ...labels.map((label, i) => el("option", { value: i }, label)));
  let latest = 0; // what was asked for before something else is not shown any more
  const load = async () => {
    const mine = ++latest;
    try {
      const found = await get(`/v1/models/${encodeURIComponent(card.name)}/groups/${choice.value}`);
      if (mine === latest) onload(found);
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
  bar.append(el("button", { type: "button", onclick: () => (latest++, onclear()) }, "Start empty"));
  bar.first = () => latest || load(); // not over what was chosen while the page was being filled
  return bar;
}

// what each other row changes in one prediction, by leaving it out of all that predicts
const AT_ONCE = 20; // rows; of more it takes a while, and is told when asked for

export function moves(place, card, table, row, value, nameOf, own = null) {
  const show = async () => {
    place.replaceChildren(el("p", { class: "hint" }, "Leaving out one after the other …"));
    try {
      const told = await changes(card, table, row, value, nameOf, own);
      if (told) place.replaceChildren(...told);
    } catch (error) {
      place.replaceChildren(el("p", { class: "hint" }, error.message));
    }
  };
  if (table.length <= AT_ONCE) return show();
  place.replaceChildren(el("button", { type: "button", onclick: show }, `Leave out each of ${table.length - 1} others`));
  return null;
}

async function changes(card, table, row, value, nameOf, own) {
  const answer = await ask(card.name, "explain", { table, row, term: "value" });
  if (!answer) return null;
  const entries = answer.rows.map((one) => ({ label: one.lag ? `${nameOf(one)} (${one.lag} earlier)` : nameOf(one), value: one[`${value}_mean`] ?? 0, row: one.row }));
  entries.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const signed = (x) => `${x < 0 ? "−" : "+"}${number(Math.abs(x), 2)}`;
  return [
    el("p", { class: "hint" }, "What each changes in the prediction, networks and simple models together, by leaving it out:"),
    bars(entries.slice(0, 8), { show: signed, label: "Changes", onpick: own }),
  ];
}

export function notesOf(place, notes) {
  const told = (notes || []).filter((note) => note.important);
  place.replaceChildren(told.length ? el("ul", { class: "notes" }, ...told.map((note) => el("li", {}, note.text))) : "");
}
