// Elements from names and texts. Names come from strangers' tables: they are only ever text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((x) => x !== null && x !== undefined).map((x) => (x instanceof Node ? x : String(x))));
  return node;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function panel(title, hint, ...children) {
  return el("section", { class: "panel" }, el("h2", {}, title), hint ? el("p", { class: "hint" }, hint) : null, ...children);
}

export function field(label, input) {
  return el("label", { class: "field" }, label, input);
}

export function number(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(Number(x))) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return Number(x).toExponential(2);
  if (size >= 1000) return String(Math.round(x));
  return String(Number(Number(x).toPrecision(digits + (size >= 100 ? 1 : 0))));
}

export function percent(p) {
  if (p === null || p === undefined) return "–";
  return p >= 0.0995 ? `${(100 * p).toFixed(0)}\u00a0%` : `${(100 * p).toFixed(p >= 0.00995 ? 1 : 2)}\u00a0%`;
}

export const words = (keys) => (Array.isArray(keys) ? keys.map((x) => x ?? "unknown").join(" · ") : String(keys ?? "unknown"));

export function soon(work, milliseconds = 120) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

export function status(text, bad = false) {
  const line = document.getElementById("status");
  line.textContent = text;
  line.classList.toggle("bad", bad);
}
