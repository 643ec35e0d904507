// The model card: what it was fitted to, what it is made of, how the fit went.

import { curves } from "./charts.js";
import { el, number, percent } from "./dom.js";

export function showCard(card) {
  const place = document.getElementById("card");
  const facts = el("dl", { class: "facts" });
  const fact = (name, value) => facts.append(el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  fact("Kind", `${card.estimator}, given ${card.context === "past" ? "what came earlier" : "all others of the group"}`);
  fact("Fitted to", `${card.rows.toLocaleString("en")} rows, ${card.groups.toLocaleString("en")} groups`);
  if (card.items) fact("Items", card.items.toLocaleString("en"));
  for (const [name, family] of Object.entries(card.family)) fact(name, family);
  for (const [role, names] of card.wide ? [] : Object.entries(card.columns)) fact(role, [names].flat().join(", "));
  const shares = el("div", { class: "shares" });
  const histories = el("div", { class: "histories" });
  for (const [name, term] of Object.entries(card.terms)) {
    shares.append(el("p", {}, `Term ${name}: ${term.parameters.toLocaleString("en")} parameters. ${mixture(term)}`));
    const [train, held] = ["train", "validation"].map((kind) => last(term.history).filter((r) => r[kind] !== null).map((r) => [r.epoch, r[kind] + term.units]));
    const lines = { training: train };
    if (held.length) lines["held out"] = held;
    histories.append(el("figure", {}, el("figcaption", {}, `Log-likelihood of ${name} per target`), curves(lines, { x: "epoch", y: "log-likelihood" })));
  }
  const notes = el("ul", {}, ...card.notes.map((note) => el("li", {}, note.text)));
  place.replaceChildren(
    el("h2", {}, "About this model"),
    facts,
    shares,
    histories,
    el("details", {}, el("summary", {}, "In words"), el("p", { class: "words" }, card.summary)),
    card.notes.length ? el("details", {}, el("summary", {}, `Notes of the fit (${card.notes.length})`), notes) : "",
  );
}

// the share of the networks in what is predicted
export function networkShare(term) {
  return Math.max(1 - term.companions.reduce((sum, one) => sum + one.share, 0), 0);
}

function mixture(term) {
  if (!term.companions.length) return "The network alone predicts.";
  const parts = term.companions.map((one) => `${one.kind || one.name || one.recipe || "a simple model"} ${percent(one.share)}`);
  return `It predicts as a mixture: network ${percent(networkShare(term))}, ${parts.join(", ")}.`;
}

function last(history) {
  const member = history.filter((record) => (record.member ?? 0) === 0);
  const first = member.map((record) => record.epoch).lastIndexOf(1);
  return member.slice(Math.max(first, 0));
}
