// Small pictures: bars, intervals, curves. Colours are read by class, so that light and dark are the style's matter.

import { el, number, percent, svg } from "./dom.js";

// [{label, value, note, chosen}], by buttons where a click means something
export function bars(entries, { onpick = null, most = null, show = percent, label = "" } = {}) {
  const top = most ?? Math.max(...entries.map((x) => Math.abs(x.value)), 1e-12);
  const list = el("ol", { class: "bars", "aria-label": label });
  for (const one of entries) {
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(svg("rect", { class: "track", width: 100, height: 8 }));
    bar.append(svg("rect", { class: one.value < 0 ? "fill less" : "fill", width: Math.max((100 * Math.abs(one.value)) / top, 0.4), height: 8 }));
    const inside = [el("span", { class: "name" }, one.label), bar, el("span", { class: "amount" }, show(one.value))];
    const line = onpick
      ? el("button", { type: "button", onclick: () => onpick(one) }, ...inside)
      : el("div", {}, ...inside);
    list.append(el("li", {}, line));
  }
  return list;
}

// an axis with room at its ends
export function wide(numbers) {
  const known = numbers.filter((x) => Number.isFinite(x));
  if (!known.length) return [0, 1];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const more = (high - low) * 0.08 || 0.5;
  return [low - more, high + more];
}

// one interval on a shared axis [low, high]; observed: a mark, null for none
export function interval({ lower, upper, mean, observed }, [low, high]) {
  const span = high - low || 1;
  const at = (x) => 2 + (96 * (Math.min(Math.max(x, low), high) - low)) / span;
  const picture = svg("svg", { class: "interval", viewBox: "0 0 100 16", preserveAspectRatio: "none", role: "img" });
  picture.setAttribute("aria-label", `${number(mean)}, from ${number(lower)} to ${number(upper)}`);
  picture.append(svg("line", { class: "axis", x1: 0, x2: 100, y1: 8, y2: 8 }));
  picture.append(svg("rect", { class: "fill", x: at(lower), width: Math.max(at(upper) - at(lower), 0.6), y: 4, height: 8, rx: 1 }));
  picture.append(svg("line", { class: "mean", x1: at(mean), x2: at(mean), y1: 2, y2: 14 }));
  if (observed !== null && observed !== undefined && observed !== "") {
    picture.append(svg("line", { class: "observed", x1: at(observed), x2: at(observed), y1: 0, y2: 16 }));
  }
  return picture;
}

// {name: [[x, y], ...]} as lines over the same axes
export function curves(lines, { x = "", y = "" } = {}) {
  const all = Object.values(lines).flat();
  const frame = el("div", { class: "curves" });
  if (all.length < 2) return frame;
  const ends = (k) => [Math.min(...all.map((p) => p[k])), Math.max(...all.map((p) => p[k]))];
  const [[x0, x1], [y0, y1]] = [ends(0), ends(1)];
  const W = 460, H = 200, L = 56, B = 34;
  const px = (v) => L + ((W - L - 10) * (v - x0)) / (x1 - x0 || 1);
  const py = (v) => H - B - ((H - B - 12) * (v - y0)) / (y1 - y0 || 1);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${y} by ${x}` });
  for (const v of [y0, (y0 + y1) / 2, y1]) {
    picture.append(svg("line", { class: "grid", x1: L, x2: W - 10, y1: py(v), y2: py(v) }));
    picture.append(svg("text", { x: L - 6, y: py(v) + 4, "text-anchor": "end" }, number(v)));
  }
  for (const v of [x0, x1]) picture.append(svg("text", { x: px(v), y: H - 16, "text-anchor": v === x0 ? "start" : "end" }, number(v)));
  picture.append(svg("text", { x: (L + W) / 2, y: H - 3, "text-anchor": "middle" }, x));
  const legend = el("p", { class: "legend" });
  Object.entries(lines).forEach(([name, points], k) => {
    picture.append(svg("polyline", { class: `line line${k}`, points: points.map((p) => `${px(p[0]).toFixed(1)},${py(p[1]).toFixed(1)}`).join(" ") }));
    legend.append(el("span", { class: `key line${k}` }, name), " ");
  });
  frame.append(picture, legend);
  return frame;
}

// viridis, thinned: even steps in lightness, safe for all eyes
const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

export function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const k = Math.min(Math.floor(at), STOPS.length - 2);
  const mixed = STOPS[k].map((c, i) => Math.round(c + (at - k) * (STOPS[k + 1][i] - c)));
  return `rgb(${mixed.join(",")})`;
}

export function scale([low, high], label) {
  const picture = svg("svg", { class: "scale", viewBox: "0 0 200 26", role: "img", "aria-label": `${label} from ${number(low)} to ${number(high)}` });
  for (let k = 0; k < 40; k++) picture.append(svg("rect", { x: 5 * k, width: 5.4, height: 10, fill: colour(k / 39) }));
  picture.append(svg("text", { x: 0, y: 23 }, number(low)), svg("text", { x: 200, y: 23, "text-anchor": "end" }, number(high)));
  picture.append(svg("text", { x: 100, y: 23, "text-anchor": "middle" }, label));
  return picture;
}
