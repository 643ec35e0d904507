// Places on a map: each predicted from the others of its group, whom it listens to, and new points anywhere.

import { ask } from "./api.js";
import { networkShare } from "./card.js";
import { bars, colour, interval, scale, wide } from "./charts.js";
import { el, field, number, panel, percent, soon, status, svg, words } from "./dom.js";
import { Group } from "./group.js";
import { Frame } from "./frame.js";
import { groupChooser, moves, notesOf } from "./parts.js";
import { surface } from "./surface.js";

const LISTENED = 12;

export async function placesView(place, card, labels) {
  new Places(place, card, labels).begin();
}

class Places {
  constructor(place, card, labels) {
    Object.assign(this, { place, card, labels, group: new Group(card), chosen: -1, adding: false, told: [], heard: [], field: null });
    this.value = this.group.list("value")[0];
    this.refresh = soon(() => this.answer(), 60);
  }

  begin() {
    this.map = svg("svg", { class: "map", role: "group", "aria-label": "Map of the places; arrow keys go from one to the next" });
    this.key = el("div", {});
    this.detail = el("div", {});
    this.listens = el("div", {});
    this.notes = el("div", {});
    this.shown = el("select", { id: "shown" }, ...[["observed", "as it is"], ["mean", "predicted"], ["sd", "how unsure"], ["miss", "predicted − as it is"]].map(([v, t]) => el("option", { value: v }, t)));
    this.shown.addEventListener("change", () => this.draw());
    const chooser = groupChooser(this.card, this.labels, (found) => {
      this.load(found);
    }, () => {
      this.group.clear();
      this.pickNone();
    });
    const adding = el("button", { type: "button", id: "adding", "aria-pressed": "false", onclick: () => this.toggle(adding) }, "Put a point");
    const spread = el("button", { type: "button", id: "surface", onclick: () => this.spread() }, "Surface");
    const tools = el("div", { class: "controls" }, field("Colour", this.shown), adding, spread, this.values());
    const hint = "Click a place. With Put a point, click anywhere: it is predicted from the places around it.";
    const left = el("div", { class: "column" }, panel("Places", hint, chooser, tools, this.map, this.key, this.byHand()));
    this.moved_by = el("div", {});
    const right = el("div", { class: "column" }, panel("This place", null, this.detail), panel("What moves it", null, this.moved_by), this.card.attention ? panel("Whom it listens to", null, this.listens) : "", this.notes);
    this.place.replaceChildren(el("div", { class: "columns" }, left, right));
    this.map.addEventListener("click", (event) => this.clicked(event));
    this.map.addEventListener("keydown", (event) => this.moved(event));
    if (this.labels.length) chooser.first();
    else this.update();
  }

  values() {
    const names = this.group.list("value");
    if (names.length < 2) return "";
    const choice = el("select", { id: "value" }, ...names.map((name) => el("option", { value: name }, name)));
    choice.addEventListener("change", () => {
      this.value = choice.value;
      this.field = null;
      this.draw();
      this.describe();
    });
    return field("Value", choice);
  }

  byHand() {
    const { latitude, longitude } = this.card.place;
    const inputs = [longitude, latitude].map((name) => el("input", { type: "number", step: "any", required: true, "aria-label": name }));
    const form = el("form", { class: "controls" }, field(longitude, inputs[0]), field(latitude, inputs[1]), el("button", {}, "Add a point"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.put(Number(inputs[0].value), Number(inputs[1].value));
    });
    return form;
  }

  load(found) {
    const before = this.chosen >= 0 ? words(this.group.item(this.group.rows[this.chosen])) : null;
    const points = this.group.rows.filter((row) => row.isNew);
    this.group.load(found);
    for (const row of points) {
      const { latitude, longitude } = this.card.place;
      this.group.add(null, { [latitude]: row[latitude], [longitude]: row[longitude], isNew: true });
    }
    this.chosen = this.group.rows.findIndex((row) => words(this.group.item(row)) === before);
    this.field = null;
    this.update();
  }

  pickNone() {
    this.chosen = -1;
    this.field = null;
    this.update();
  }

  toggle(button) {
    this.adding = !this.adding;
    button.setAttribute("aria-pressed", String(this.adding));
    this.map.classList.toggle("adding", this.adding);
  }

  table(rows = this.group.rows) {
    return this.group.table(rows.map(({ isNew, ...row }) => row));
  }

  update() {
    this.told = [];
    this.heard = [];
    this.draw();
    this.refresh();
  }

  async answer() {
    if (!this.group.rows.length) return this.describe();
    try {
      const answer = await ask(this.card.name, "predict", { table: this.table() });
      if (!answer) return;
      this.told = answer.rows.slice(0, this.group.rows.length);
      notesOf(this.notes, answer.notes.filter((note) => note.kind !== "unknown items"));
      status("");
      this.draw();
      await this.describe();
    } catch (error) {
      status(error.message, true);
    }
  }

  // ---- the map

  of(i) {
    const row = this.group.rows[i];
    const told = this.told[i] || {};
    const seen = row[this.value] ?? null;
    const mean = told[`${this.value}_mean`] ?? null;
    return { observed: seen, mean, sd: told[`${this.value}_sd`] ?? null, lower: told[`${this.value}_lower`], upper: told[`${this.value}_upper`], miss: seen === null || mean === null ? null : mean - seen };
  }

  draw() {
    const { latitude, longitude } = this.card.place;
    this.frame = new Frame(this.group.rows.map((row) => [row[longitude], row[latitude]]));
    const { frame } = this;
    this.map.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    const kind = this.shown.value;
    const numbers = this.group.rows.map((_, i) => this.of(i)[kind] ?? (kind === "observed" ? this.of(i).mean : null));
    const known = numbers.filter((x) => x !== null);
    const ends = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    if (kind === "miss") ends.splice(0, 2, -Math.max(...ends.map(Math.abs)), Math.max(...ends.map(Math.abs)));
    const share = (x) => (x - ends[0]) / (ends[1] - ends[0] || 1);
    const parts = [...frame.lines()];
    if (this.field && (kind === "observed" || kind === "mean")) {
      for (const { x, y, w, h, value } of this.field.cells(frame)) parts.push(svg("rect", { x, y, width: w, height: h, fill: colour(share(value)), "fill-opacity": 0.55 }));
    }
    const size = matchMedia("(max-width: 800px)").matches ? 10 : 6.5;
    this.lines = svg("g", {});
    parts.push(this.lines);
    this.points = this.group.rows.map((row, i) => {
      const [x, y] = frame.at(row[longitude], row[latitude]);
      const chosen = i === this.chosen;
      const name = row.isNew ? "New point" : words(this.group.item(row));
      const point = svg("circle", {
        class: `place${row.isNew ? " new" : ""}${chosen ? " chosen" : ""}`, cx: x, cy: y, r: chosen ? 1.4 * size : size, "data-row": i,
        fill: numbers[i] === null ? "transparent" : colour(share(numbers[i])), role: "button", tabindex: i === Math.max(this.chosen, 0) ? 0 : -1,
        "aria-pressed": chosen ? "true" : "false", "aria-label": `${name}, ${number(numbers[i])}` }, svg("title", {}, `${name}: ${number(numbers[i])}`));
      return point;
    });
    const focused = this.map.contains(document.activeElement);
    this.map.replaceChildren(...parts, ...this.points);
    if (this.chosen >= 0) this.connect();
    if (focused && this.points[this.chosen]) this.points[this.chosen].focus({ preventScroll: true });
    const labels = { observed: this.value, mean: `${this.value}, predicted`, sd: "standard deviation", miss: "predicted − as it is" };
    this.key.replaceChildren(scale(ends, labels[kind]));
  }

  clicked(event) {
    const row = event.target.closest("[data-row]");
    if (row && !this.adding) return this.pick(Number(row.dataset.row));
    if (!this.adding) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.map.getScreenCTM().inverse());
    this.put(...this.frame.place(at.x, at.y));
  }

  moved(event) {
    const i = Number(event.target.dataset?.row ?? -1);
    if (i < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.pick(i);
    }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    const { latitude, longitude } = this.card.place;
    const place = (k) => this.frame.at(this.group.rows[k][longitude], this.group.rows[k][latitude]);
    const [x, y] = place(i);
    let best = -1;
    let nearest = Infinity;
    this.group.rows.forEach((_, k) => {
      const [a, b] = place(k);
      const along = (a - x) * dx + (b - y) * dy;
      const aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      const far = along + 2 * aside;
      if (k !== i && along > 0.5 && far < nearest) [best, nearest] = [k, far];
    });
    if (best >= 0) {
      this.points[best].focus({ preventScroll: true });
      this.pick(best);
    }
  }

  put(longitude, latitude) {
    const names = this.card.place;
    this.chosen = this.group.add(null, { [names.longitude]: Number(longitude.toFixed(4)), [names.latitude]: Number(latitude.toFixed(4)), isNew: true });
    this.update();
  }

  pick(i) {
    this.chosen = i;
    this.heard = [];
    this.draw();
    this.describe();
  }

  remove() {
    this.group.rows.splice(this.chosen, 1);
    this.pickNone();
  }

  async spread() {
    if (!this.group.rows.length || this.field) {
      this.field = null;
      return this.draw();
    }
    try {
      this.field = await surface(this, (done) => status(`Surface: ${percent(done)} …`));
      status("");
    } catch (error) {
      status(error.message, true);
    }
    this.draw();
  }

  // ---- one place

  async describe() {
    const row = this.group.rows[this.chosen];
    if (!row) {
      this.detail.replaceChildren(el("p", { class: "hint" }, this.group.rows.length ? "None is chosen." : "Put a point, or start the server with --table to begin with some."));
      this.listens.replaceChildren();
      this.moved_by.replaceChildren();
      return;
    }
    const one = this.of(this.chosen);
    const name = row.isNew ? "New point" : words(this.group.item(row));
    const { latitude, longitude } = this.card.place;
    const input = el("input", { type: "number", step: "any", id: "observed", value: row[this.value] });
    input.addEventListener("input", () => {
      row[this.value] = input.value === "" ? null : Number(input.value);
      this.field = null;
      this.refresh();
    });
    const kept = document.activeElement?.id === "observed";
    const parts = [el("h3", {}, name), el("p", { class: "hint" }, `${longitude} ${number(row[longitude], 5)}, ${latitude} ${number(row[latitude], 5)}`)];
    if (one.mean !== null) {
      parts.push(el("p", {}, el("span", { class: "big", id: "mean" }, number(one.mean)), ` ${this.value}, with 90 % between ${number(one.lower)} and ${number(one.upper)}`));
      parts.push(interval(one, wide([one.lower, one.upper, one.observed])));
      parts.push(el("p", { class: "legend" }, el("span", { class: "key" }, "predicted from the others"), one.observed === null ? "" : el("span", { class: "key observed" }, "as it is")));
    }
    parts.push(el("div", { class: "controls" }, field(`${this.value} as it is`, input), el("button", { type: "button", onclick: () => this.remove() }, "Remove")));
    this.detail.replaceChildren(...parts);
    if (kept) input.focus();
    await Promise.all([this.listen(), this.explain()]);
  }

  async explain() {
    const name = (one) => (this.group.rows[one.row]?.isNew ? "New point" : words(this.card.item_columns.map((c) => one[c])));
    const own = (one) => one.row < this.group.rows.length && this.pick(one.row);
    await moves(this.moved_by, this.card, this.table(), this.chosen, this.value, name, own);
  }

  // lines from the chosen place to those that it listens to, the stronger the broader
  connect() {
    const { latitude, longitude } = this.card.place;
    const at = (i) => this.frame.at(this.group.rows[i][longitude], this.group.rows[i][latitude]);
    const top = this.heard[0] ? this.heard[0].weight : 1;
    this.lines.replaceChildren(...this.heard.map((o) => {
      const [[x1, y1], [x2, y2]] = [at(this.chosen), at(o.j)];
      const [width, shade] = [0.5 + (4 * o.weight) / top, 0.25 + (0.6 * o.weight) / top];
      return svg("line", { class: "listens", x1, y1, x2, y2, "stroke-width": width.toFixed(2), "stroke-opacity": shade.toFixed(2) });
    }));
  }

  async listen() {
    if (!this.card.attention) return;
    let answer = null;
    try {
      answer = await ask(this.card.name, "attention", { table: this.table(), term: this.card.value_term });
    } catch (error) {
      return this.listens.replaceChildren(el("p", { class: "hint" }, error.message));
    }
    if (!answer || this.chosen < 0) return;
    const me = this.chosen;
    const rows = this.group.rows;
    const line = answer.weights[me].map((weight, j) => ({ weight, j, lag: answer.lags[j] }));
    const others = line.filter((x) => x.j !== me).sort((a, b) => b.weight - a.weight).slice(0, LISTENED);
    this.heard = others.filter((o) => o.j < rows.length && !o.lag);
    this.connect();
    const share = networkShare(this.card.terms[this.card.value_term]);
    this.listens.replaceChildren(
      el("p", { class: "hint" }, `Attention of the network, which has ${percent(share)} of the mixture; ${percent(line[me].weight)} stays with the place itself, its value unseen.`),
      bars(others.map((o) => ({ label: `${rows[o.j]?.isNew ? "New point" : words(answer.contexts[o.j])}${o.lag ? ` (${o.lag} earlier)` : ""}`, value: o.weight, j: o.j })), {
        onpick: (o) => o.j < rows.length && this.pick(o.j), label: "Attention" }),
    );
  }
}
