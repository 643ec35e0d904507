// A wide table: one field for each column; what is left empty is predicted from the rest.

import { ask } from "./api.js";
import { networkShare } from "./card.js";
import { bars, interval, wide } from "./charts.js";
import { el, number, panel, percent, soon, status, words } from "./dom.js";
import { groupChooser, notesOf } from "./parts.js";

export async function wideView(place, card, labels) {
  new Wide(place, card, labels).begin();
}

class Wide {
  constructor(place, card, labels) {
    Object.assign(this, { place, card, labels, row: {}, chosen: null });
    this.refresh = soon(() => this.answer());
  }

  begin() {
    this.fields = new Map();
    this.notes = el("div", {});
    this.looks = el("div", {});
    const form = el("div", { class: "fields" }, ...this.card.wide.map((one) => this.field(one)));
    const load = (row) => {
      this.row = Object.fromEntries(this.card.wide.map(({ name }) => [name, row[name] ?? null]));
      for (const [name, { input }] of this.fields) input.value = this.row[name] ?? "";
      this.refresh();
    };
    const chooser = groupChooser({ ...this.card, columns: { group: "row" } }, this.labels, ({ rows }) => load(rows[0]), () => load({}));
    const hint = "Fill in what you know. What is empty is predicted from the rest; what is filled, too, as if it were empty.";
    const right = el("div", { class: "column" }, this.card.attention ? panel("What it looks at", null, this.looks) : "", this.notes);
    this.place.replaceChildren(el("div", { class: "columns" }, el("div", { class: "column" }, panel("One row", hint, chooser, form)), right));
    if (this.labels.length) chooser.first();
    else load({});
  }

  field({ name, levels, truth }) {
    const input = levels.length
      ? el("select", {}, el("option", { value: "" }, "–"), ...levels.map((level) => el("option", { value: level }, level)))
      : el("input", { type: "number", step: "any" });
    const told = el("div", { class: "told" });
    input.addEventListener("input", () => {
      const empty = input.value === "";
      this.row[name] = empty ? null : truth ? input.value === "true" : levels.length ? input.value : Number(input.value);
      this.refresh();
    });
    input.addEventListener("focus", () => {
      this.chosen = name;
      this.attend();
    });
    this.fields.set(name, { input, told, levels });
    return el("div", { class: "wide-field" }, el("label", { class: "field" }, el("span", { class: "name" }, name), input), told);
  }

  table() {
    return [this.row];
  }

  async answer() {
    try {
      const answer = await ask(this.card.name, "predict", { table: this.table() });
      if (!answer) return;
      status("");
      notesOf(this.notes, answer.notes.filter((note) => note.kind !== "missing column"));
      for (const [name, { told, levels }] of this.fields) told.replaceChildren(...this.expected(answer.rows[0], name, levels));
      await this.attend();
    } catch (error) {
      status(error.message, true);
    }
  }

  expected(row, name, levels) {
    if (levels.length) {
      const entries = levels.map((level) => ({ label: level, value: row[`${name}_p_${level}`] ?? 0 }));
      entries.sort((a, b) => b.value - a.value);
      return [bars(entries.slice(0, 4), { most: 1, label: `Probabilities of ${name}` })];
    }
    const one = { mean: row[`${name}_mean`], lower: row[`${name}_lower`], upper: row[`${name}_upper`], observed: this.row[name] };
    if (one.mean === null || one.mean === undefined) return [];
    return [el("p", { class: "hint" }, `${number(one.mean)}, with 90 % between ${number(one.lower)} and ${number(one.upper)}`), interval(one, wide([one.lower, one.upper, one.observed ?? one.mean]))];
  }

  async attend() {
    if (!this.card.attention) return;
    const place = this.card.wide.findIndex((one) => one.name === this.chosen);
    if (place < 0) return this.looks.replaceChildren(el("p", { class: "hint" }, "Go to a field."));
    try {
      const answer = await ask(this.card.name, "attention", { table: this.table(), term: this.card.value_term });
      if (!answer) return;
      const target = answer.targets.findIndex((name) => words(name) === this.chosen);
      const entries = (answer.weights[target] || []).map((value, j) => ({ label: j === target ? "itself, unseen" : words(answer.contexts[j]), value }));
      entries.sort((a, b) => b.value - a.value);
      const share = networkShare(this.card.terms[this.card.value_term]);
      this.looks.replaceChildren(el("p", { class: "hint" }, `To predict ${this.chosen}, the network (${percent(share)} of the mixture) looks at:`), bars(entries.slice(0, 12), { label: "Attention" }));
    } catch (error) {
      this.looks.replaceChildren(el("p", { class: "hint" }, error.message));
    }
  }
}
