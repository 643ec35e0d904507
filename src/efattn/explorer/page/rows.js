// Baskets, sequences and ratings: the rows of one group, edited; what is missing or comes next changes at once.

import { ask, get } from "./api.js";
import { bars, interval, wide } from "./charts.js";
import { networkShare } from "./card.js";
import { el, field, number, panel, percent, soon, status, words } from "./dom.js";
import { Group } from "./group.js";
import { groupChooser, moves, notesOf } from "./parts.js";

const SHOWN = 12;

export async function rowsView(place, card, labels) {
  await new Rows(place, card, labels).begin();
}

class Rows {
  constructor(place, card, labels) {
    Object.assign(this, { place, card, labels, group: new Group(card), chosen: -1, known: new Map() });
    this.items = card.item_columns.length > 0;
    this.next = card.models.includes("item");
    this.values = card.models.includes("value") ? this.group.list("value") : [];
    this.refresh = soon(() => this.answer());
    this.search = soon(() => this.suggest(), 150);
  }

  async begin() {
    this.table = el("div", { class: "scroller" });
    this.left = el("div", { class: "column" });
    this.right = el("div", { class: "column" });
    const chooser = groupChooser(this.card, this.labels, (found) => {
      this.group.load(found);
      this.chosen = -1;
      this.update();
    }, () => {
      this.group.clear();
      this.chosen = -1;
      this.update();
    });
    const what = this.values.length ? "Rows of this group" : this.card.context === "past" ? "This sequence" : "This basket";
    this.left.append(panel(what, this.words(), chooser, this.table, this.adder()));
    this.after = el("div", {});
    this.looks = el("div", {});
    this.goes = el("div", {});
    this.moved = el("div", {});
    this.notes = el("div", {});
    if (this.next) this.right.append(panel(this.card.context === "past" ? "What comes next" : "What is missing", "Click one to add it.", this.after));
    if (this.values.length) this.right.append(panel("What moves it", null, this.moved));
    if (this.card.attention) this.right.append(panel("What it looks at", null, this.looks));
    if (this.items) this.right.append(panel("What goes with it", null, this.goes));
    this.right.append(this.notes);
    this.place.replaceChildren(el("div", { class: "columns" }, this.left, this.right));
    await this.suggest();
    if (this.labels.length) chooser.first();
    else this.update();
  }

  words() {
    if (this.values.length) return "Type values; each is predicted from the other rows, never from itself. An empty one is missing.";
    return "Add items by typing or clicking; probabilities follow at once.";
  }

  adder() {
    if (!this.items) return el("div", { class: "controls" }, el("button", { type: "button", onclick: () => this.add(null) }, "Add a row"));
    this.options = el("datalist", { id: "items" });
    this.typed = el("input", { id: "add", list: "items", autocomplete: "off", placeholder: "Type a name" });
    this.typed.addEventListener("input", () => {
      this.search();
    });
    const form = el("form", { class: "controls" }, field("Add", this.typed), el("button", {}, "Add"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const keys = this.known.get(this.typed.value.trim());
      if (!keys) return status(`There is no item ${this.typed.value.trim()}.`, true);
      this.typed.value = "";
      this.add(keys);
      this.search();
    });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Items to add" });
    return el("div", {}, form, this.options, this.chips);
  }

  async suggest() {
    if (!this.items) return;
    const at = `/v1/models/${encodeURIComponent(this.card.name)}/items`;
    const { items } = await get(`${at}?limit=40&search=${encodeURIComponent(this.typed.value.trim())}`);
    for (const keys of items) this.known.set(words(keys), keys);
    this.options.replaceChildren(...items.map((keys) => el("option", { value: words(keys) })));
    this.chips.replaceChildren(...items.map((keys) => el("button", { type: "button", onclick: () => this.add(keys) }, words(keys))));
  }

  add(keys) {
    const inside = keys !== null && this.group.rows.some((row) => words(this.group.item(row)) === words(keys));
    if (inside && this.card.support === "distinct") return status(`${words(keys)} is there already.`);
    this.group.add(keys);
    this.update();
  }

  update() {
    this.draw();
    this.refresh();
  }

  inputs() {
    const attributes = this.group.list("attributes");
    return [...attributes, ...this.group.list("exposure").filter((n) => !attributes.includes(n)), ...this.values];
  }

  draw() {
    const inputs = this.inputs();
    const heads = [this.items ? "Item" : "Row", ...inputs, ...(this.values.length ? ["Predicted", "With 90 % between"] : []), ""];
    const body = el("tbody");
    this.lines = this.group.rows.map((row, i) => this.line(row, i, inputs));
    body.append(...this.lines.map((line) => line.row));
    if (!this.group.rows.length) body.append(el("tr", {}, el("td", { colspan: heads.length }, "Nothing here yet.")));
    this.table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((x) => el("th", { scope: "col" }, x)))), body));
    if (this.values.length) this.table.append(el("p", { class: "legend" }, el("span", { class: "key" }, "predicted"), el("span", { class: "key observed" }, "as it is")));
  }

  line(row, i, inputs) {
    const name = this.items ? words(this.group.item(row)) : `Row ${i + 1}`;
    const pick = el("button", { type: "button", class: "pick", onclick: () => this.pick(i) }, name);
    const drop = el("button", { type: "button", "aria-label": `Remove ${name}`, onclick: () => this.drop(i) }, "×");
    const cells = inputs.map((column) => el("td", {}, this.input(row, column, name)));
    const told = this.values.length ? [el("td", { class: "number" }), el("td", {})] : [];
    const line = el("tr", { "aria-selected": i === this.chosen ? "true" : "false" }, el("td", { class: "name" }, pick), ...cells, ...told, el("td", {}, drop));
    return { row: line, told };
  }

  input(row, column, name) {
    const levels = this.card.levels[column];
    if (levels) {
      const choice = el("select", { "aria-label": `${column} of ${name}` }, ...levels.map((word) => el("option", { value: word }, word)));
      choice.value = row[column];
      choice.addEventListener("change", () => this.set(row, column, choice.value));
      return choice;
    }
    const input = el("input", { type: "number", step: "any", "aria-label": `${column} of ${name}`, value: row[column] });
    input.addEventListener("input", () => {
      const empty = input.value === "";
      if (empty && !this.values.includes(column)) return;
      this.set(row, column, empty ? null : Number(input.value));
    });
    return input;
  }

  set(row, column, value) {
    row[column] = value;
    this.refresh();
  }

  pick(i) {
    this.chosen = this.chosen === i ? -1 : i;
    this.lines.forEach((line, k) => line.row.setAttribute("aria-selected", k === this.chosen ? "true" : "false"));
    this.refresh();
  }

  drop(i) {
    this.group.rows.splice(i, 1);
    this.chosen = -1;
    this.update();
    const button = this.table.querySelectorAll("tbody button[aria-label]")[Math.max(i - 1, 0)];
    if (button) button.focus();
  }

  async answer() {
    try {
      status("");
      await Promise.all([this.predict(), this.recommend(), this.attend(), this.explain(), this.similar()]);
    } catch (error) {
      status(error.message, true);
    }
  }

  async predict() {
    if (!this.values.length || !this.group.rows.length) return;
    const answer = await ask(this.card.name, "predict", { table: this.group.table() });
    if (!answer) return;
    notesOf(this.notes, answer.notes);
    const told = answer.rows.slice(0, this.lines.length);
    const column = this.values[0];
    const ends = wide(told.flatMap((row) => [row[`${column}_lower`], row[`${column}_upper`], row[column]]));
    told.forEach((row, i) => {
      const { told: [cell, picture] } = this.lines[i];
      cell.textContent = this.values.map((name) => number(row[`${name}_mean`])).join(", ");
      const one = { lower: row[`${column}_lower`], upper: row[`${column}_upper`], mean: row[`${column}_mean`], observed: row[column] };
      picture.replaceChildren(interval(one, ends));
    });
  }

  async recommend() {
    if (!this.next) return;
    const rows = this.group.rows.length ? { table: this.group.table() } : {};
    const answer = await ask(this.card.name, "recommend", { ...rows, k: SHOWN });
    if (!answer) return;
    const mine = this.group.list("group");
    const own = this.group.rows[0];
    const told = answer.rows.filter((row) => !own || mine.every((name) => row[name] === undefined || String(row[name]) === String(own[name])));
    const entries = told.slice(0, SHOWN).map((row) => ({ keys: this.card.item_columns.map((name) => row[name]), value: row.probability ?? row.probability_ }));
    this.after.replaceChildren(bars(entries.map((x) => ({ ...x, label: words(x.keys) })), { onpick: (one) => this.add(one.keys), label: "Probabilities" }));
  }

  async attend() {
    if (!this.card.attention) return;
    const last = this.next && this.chosen < 0;
    if (!this.group.rows.length || (this.chosen < 0 && !last)) {
      this.looks.replaceChildren(el("p", { class: "hint" }, "Choose a row by its name."));
      return;
    }
    const rows = last ? [...this.group.rows, this.group.fresh()] : this.group.rows;
    const wanted = last || !this.values.length ? this.card.item_term : this.card.value_term;
    const answer = await ask(this.card.name, "attention", { table: this.group.table(rows), term: wanted });
    if (!answer) return;
    const target = last ? rows.length - 1 : this.order().indexOf(this.chosen);
    const line = answer.weights[target] || [];
    const entries = line.map((value, j) => ({ label: label(answer, j, target), value })).sort((a, b) => b.value - a.value);
    const who = last ? (this.card.context === "past" ? "the next one" : "a missing one") : words(this.group.item(this.group.rows[this.chosen]));
    const share = networkShare(this.card.terms[wanted]);
    this.looks.replaceChildren(
      el("p", { class: "hint" }, `To predict ${who}, the network (${percent(share)} of the mixture) looks at:`),
      bars(entries.slice(0, SHOWN), { most: 1, label: "Attention" }),
    );
  }

  async explain() {
    if (!this.values.length) return;
    if (this.chosen < 0) return this.moved.replaceChildren(el("p", { class: "hint" }, "Choose a row by its name."));
    const name = (one) => (this.items ? words(this.card.item_columns.map((c) => one[c])) : `Row ${one.row + 1}`);
    await moves(this.moved, this.card, this.group.table(), this.chosen, this.values[0], name);
  }

  // rows as the engine sorts them: by the order column, ties as they stand
  order() {
    const [name] = this.group.list("order");
    const index = this.group.rows.map((_, i) => i);
    if (!name) return index;
    const rank = (i) => this.group.rows[i][name];
    return index.sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : a - b));
  }

  async similar() {
    if (!this.items) return;
    const row = this.group.rows[this.chosen] ?? this.group.rows[this.group.rows.length - 1];
    const keys = row && this.group.item(row);
    if (!keys || keys.some((key) => key === null)) {
      this.goes.replaceChildren(el("p", { class: "hint" }, "Of the row that is chosen, or the last."));
      return;
    }
    try {
      const answer = await ask(this.card.name, "similar", { item: keys.length === 1 ? keys[0] : keys, k: 6 });
      if (!answer) return;
      const entries = answer.rows.map((one) => ({ keys: this.card.item_columns.map((name) => one[name]), value: one.score ?? one.score_ }));
      this.goes.replaceChildren(el("p", { class: "hint" }, `With ${words(keys)}:`), bars(entries.map((x) => ({ ...x, label: words(x.keys) })), {
        onpick: (one) => this.add(one.keys), most: Math.max(0.1, ...entries.map((x) => Math.abs(x.value))), show: score, label: "What goes with it" }));
    } catch (error) {
      this.goes.replaceChildren(el("p", { class: "hint" }, error.message));
    }
  }
}

const score = (x) => (Math.abs(x) < 0.005 ? "0" : x.toFixed(2));

function label(answer, j, target) {
  const name = j === target ? "itself, unseen" : words(answer.contexts[j]);
  return answer.lags[j] ? `${name} (${answer.lags[j]} earlier)` : name;
}
