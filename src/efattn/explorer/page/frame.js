// From degrees to the map and back: plain, with degrees of longitude as narrow as they are there.

import { number, svg } from "./dom.js";

const WIDTH = 640;

export class Frame {
  constructor(places) {
    const known = places.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
    const ends = (k, usual) => (known.length ? [Math.min(...known.map((p) => p[k])), Math.max(...known.map((p) => p[k]))] : usual);
    [this.west, this.east] = wider(ends(0, [-180, 180]));
    [this.south, this.north] = wider(ends(1, [-60, 80]));
    const middle = (this.south + this.north) / 2;
    this.narrow = Math.max(Math.cos((Math.min(Math.abs(middle), 80) * Math.PI) / 180), 0.2);
    this.width = WIDTH;
    const high = (WIDTH * (this.north - this.south)) / ((this.east - this.west) * this.narrow);
    this.height = Math.round(Math.min(Math.max(high, 260), 620));
  }

  at(longitude, latitude) {
    return [(this.width * (longitude - this.west)) / (this.east - this.west), (this.height * (this.north - latitude)) / (this.north - this.south)];
  }

  place(x, y) {
    return [this.west + (x / this.width) * (this.east - this.west), this.north - (y / this.height) * (this.north - this.south)];
  }

  lines() {
    const found = [];
    for (const v of ticks(this.west, this.east)) {
      const [x] = this.at(v, this.south);
      found.push(svg("line", { class: "grid", x1: x, x2: x, y1: 0, y2: this.height }), svg("text", { x: x + 3, y: this.height - 4 }, `${number(v, 4)}°`));
    }
    for (const v of ticks(this.south, this.north)) {
      const [, y] = this.at(this.west, v);
      found.push(svg("line", { class: "grid", x1: 0, x2: this.width, y1: y, y2: y }), svg("text", { x: 4, y: y - 3 }, `${number(v, 4)}°`));
    }
    return found;
  }
}

function wider([low, high]) {
  const more = Math.max((high - low) * 0.06, 0.05);
  return [low - more, high + more];
}

function ticks(low, high) {
  const rough = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v < high; v += step) found.push(Number(v.toPrecision(10)));
  return found;
}
