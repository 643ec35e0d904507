// Which model, and the view that suits it: a map of places, or the rows of a group.

import { get, setToken } from "./api.js";
import { showCard } from "./card.js";
import { el, status } from "./dom.js";
import { rowsView } from "./rows.js";
import { placesView } from "./places.js";
import { wideView } from "./wide.js";

const chooser = document.getElementById("model");
const view = document.getElementById("view");
const form = document.getElementById("token-form");

async function start() {
  try {
    const { models } = await get("/v1/models");
    form.hidden = true;
    chooser.replaceChildren(...models.map((name) => el("option", { value: name }, name)));
    const wanted = decodeURIComponent(location.hash.slice(1));
    if (models.includes(wanted)) chooser.value = wanted;
    await show(chooser.value);
  } catch (error) {
    if (error.status === 401) {
      form.hidden = false;
      status("This server asks for its token.");
      document.getElementById("token").focus();
    } else status(error.message, true);
  }
}

async function show(name) {
  status(`Loading ${name} …`);
  view.replaceChildren();
  const at = `/v1/models/${encodeURIComponent(name)}`;
  const [card, { groups }] = await Promise.all([get(at), get(`${at}/groups`)]);
  document.title = `${name} · efattn explorer`;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  showCard(card);
  status("");
  const make = card.wide ? wideView : card.place && card.models.includes("value") ? placesView : rowsView;
  await make(view, card, groups);
}

chooser.addEventListener("change", () => show(chooser.value).catch((error) => status(error.message, true)));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(document.getElementById("token").value);
  start();
});
start();
