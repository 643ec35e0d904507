// What would be expected anywhere: a grid of points, each alone beside the places that there are.

import { ask } from "./api.js";

const ACROSS = 14;
const AT_ONCE = 4000; // rows of one request

export async function surface(view, progress) {
  const { card, group, frame } = view;
  const names = card.place;
  if (card.lags) throw new Error("A surface is drawn for models without lags.");
  const [column] = group.list("group");
  if (!column) throw new Error("A surface needs a group column.");
  const places = group.rows.map(({ isNew, ...row }) => row);
  const down = Math.max(Math.round((ACROSS * frame.height) / frame.width), 4);
  const points = [];
  for (let j = 0; j < down; j++) for (let i = 0; i < ACROSS; i++) points.push(frame.place(((i + 0.5) / ACROSS) * frame.width, ((j + 0.5) / down) * frame.height));
  const each = Math.max(Math.floor(AT_ONCE / (places.length + 1)), 1);
  const values = [];
  for (let first = 0; first < points.length; first += each) {
    const some = points.slice(first, first + each);
    const table = some.flatMap(([x, y], k) => {
      const row = { ...group.fresh(), [names.longitude]: x, [names.latitude]: y };
      return [row, ...places].map((one) => ({ ...one, [column]: `point ${first + k}` }));
    });
    const answer = await ask(card.name, "predict", { table, interval: null }, "surface");
    if (!answer) throw new Error("The surface was given up for a newer one.");
    some.forEach((_, k) => values.push(answer.rows[k * (places.length + 1)]));
    progress(Math.min((first + each) / points.length, 1));
  }
  return {
    cells(now) {
      const value = `${view.value}_mean`;
      return points.map(([x, y], k) => {
        const [cx, cy] = now.at(x, y);
        const w = frame.width / ACROSS, h = frame.height / down;
        return { x: cx - w / 2, y: cy - h / 2, w: w + 0.4, h: h + 0.4, value: values[k][value] };
      });
    },
  };
}
