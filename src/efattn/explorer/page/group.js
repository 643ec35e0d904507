// The rows of the group at hand, and what a new row of it looks like.

export class Group {
  constructor(card) {
    this.card = card;
    this.rows = [];
    this.earlier = []; // rows of earlier groups, which are context only
  }

  get roles() {
    return this.card.columns;
  }

  list(role) {
    const names = this.roles[role];
    return names === undefined || names === null ? [] : Array.isArray(names) ? names : names === "row" && role === "order" ? [] : [names];
  }

  load({ rows, own }) {
    this.rows = rows.slice(0, own).map((row) => ({ ...row }));
    this.earlier = rows.slice(own);
  }

  clear() {
    this.rows = [];
    this.earlier = [];
  }

  table(rows = this.rows) {
    return [...rows, ...this.earlier];
  }

  item(row) {
    return this.card.item_columns.map((name) => row[name] ?? null);
  }

  fresh(keys = null) {
    const last = this.rows[this.rows.length - 1] || {};
    const row = {};
    for (const name of this.list("group")) row[name] = last[name] ?? (this.card.time_kind && this.list("time").includes(name) ? this.start() : "here");
    for (const name of this.list("series")) row[name] = last[name] ?? "here";
    for (const name of this.list("time")) row[name] = last[name] ?? this.start();
    for (const name of this.list("order")) row[name] = this.after(name);
    for (const name of this.list("attributes")) row[name] = last[name] ?? (this.card.levels[name] ? this.card.levels[name][0] : 0);
    for (const name of [...this.list("exposure"), ...this.list("weight")]) row[name] = row[name] ?? last[name] ?? 1;
    for (const name of this.list("noise")) row[name] = row[name] ?? last[name] ?? 0;
    for (const name of this.list("target")) row[name] = true;
    this.card.item_columns.forEach((name, c) => (row[name] = keys ? keys[c] : null));
    for (const name of this.list("value")) row[name] = null;
    return row;
  }

  start() {
    return this.card.time_kind === "instant" ? "2024-01-01" : 1;
  }

  after(name) {
    const known = this.rows.map((row) => row[name]).filter((x) => x !== null && x !== undefined);
    if (!known.length) return this.card.when_kind === "instant" ? "2024-01-01" : 1;
    if (known.every((x) => typeof x === "number")) return Math.max(...known) + 1;
    const last = known.sort()[known.length - 1];
    const next = new Date(`${last.length <= 10 ? `${last}T00:00:00` : last.replace(" ", "T")}Z`);
    if (Number.isNaN(next.getTime())) return last;
    next.setUTCDate(next.getUTCDate() + 1);
    const text = next.toISOString();
    return last.length <= 10 ? text.slice(0, 10) : text.slice(0, last.length).replace("T", last[10] || "T");
  }

  add(keys = null, more = {}) {
    this.rows.push({ ...this.fresh(keys), ...more });
    return this.rows.length - 1;
  }
}
