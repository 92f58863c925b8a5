// The drawing of a prediction: a bar for each level, the interval below them, and the expected value on it.

import { drawShape, set } from "/page/elements.js";
import { formatPercent } from "/page/wording.js";

const BARS = 38; // the height of the highest bar; the interval is drawn below it
const BELOW = 12;
const FULL = 3; // times an even share is a bar of full height, so that drawings can be compared

export class DistributionDrawing {
  constructor(scale) {
    this.scale = scale;
    this.bars = [];
    this.base = drawShape("line", { class: "base", x1: 0, x2: "100%" });
    this.interval = drawShape("line", { class: "interval" });
    this.expected = drawShape("circle", { class: "expected", r: 4 });
    this.node = drawShape("svg", { class: "distribution", "aria-hidden": "true" }, this.base);
    this.#stand(BARS);
  }

  /** Draw a prediction; those of models without a distribution are their expected value alone. */
  show(prediction) {
    const shares = prediction.distribution ?? [];
    if (this.bars.length !== shares.length) this.#makeBars(shares.length);
    this.#stand(shares.length ? BARS : 2);
    const [edges, heights] = this.#shape(shares);
    this.bars.forEach((bar, at) => {
      const height = Math.max(1, heights[at] * (BARS - 1));
      const [left, right] = edges[at];
      set(bar, { x: `${100 * left}%`, width: `${100 * (right - left)}%`, y: BARS - height, height });
      bar.classList.toggle("likely", within(shares[at].level, prediction.interval));
    });
    set(this.expected, { cx: `${100 * clip(this.scale.place(prediction.expected))}%` });
    const ends = prediction.interval ?? { low: prediction.expected, high: prediction.expected };
    set(this.interval, { x1: this.#at(ends.low), x2: this.#at(ends.high) });
    if (!this.expected.isConnected) this.node.append(this.interval, this.expected);
  }

  /** Put everything on a base line. */
  #stand(y) {
    set(this.node, { height: y + BELOW });
    set(this.base, { y1: y, y2: y });
    set(this.interval, { y1: y + 7, y2: y + 7 });
    set(this.expected, { cy: y + 7 });
  }

  #at(value) {
    return `${100 * clip(this.scale.place(value))}%`;
  }

  #makeBars(count) {
    this.bars.forEach((bar) => bar.remove());
    this.bars = Array.from({ length: count }, () => drawShape("rect", { class: "share", y: BARS, height: 0, rx: count > 30 ? 0 : 2 }));
    this.node.prepend(...this.bars);
  }

  /** Return where bars begin and end, and how high they are, all from 0 to 1. */
  #shape(shares) {
    if (this.scale.levels !== null) {
      const [n, gap] = [shares.length, shares.length > 30 ? 0.05 : 0.16];
      const highest = Math.max(Math.min(FULL / n, 1), ...shares.map((share) => share.probability));
      return [shares.map((_, at) => [(at + gap) / n, (at + 1 - gap) / n]), shares.map((share) => share.probability / highest)];
    }
    // Bins of real values differ in width: their area is the probability.
    const middles = shares.map((share) => clip(this.scale.place(share.level)));
    const between = [0, ...middles.slice(1).map((middle, at) => (middle + middles[at]) / 2), 1];
    const edges = middles.map((_, at) => [between[at], between[at + 1]]);
    const densities = shares.map((share, at) => share.probability / Math.max(edges[at][1] - edges[at][0], 1e-6));
    const highest = Math.max(...densities, 1e-9);
    return [edges, densities.map((density) => density / highest)];
  }
}

/** Return a prediction in words, for those who do not see it drawn. */
export function predictionWords(scale, { expected, interval }) {
  const value = `predicted ${scale.expectedText(expected)}`;
  if (!interval) return value;
  return `${value}, ${formatPercent(interval.coverage)} interval ${rangeText(scale, interval)}`;
}

/** Return an interval as text. */
export function rangeText(scale, { low, high }) {
  const text = scale.levels === null ? (value) => scale.expectedText(value) : (value) => scale.valueText(value);
  return low === high ? text(low) : `${text(low)} to ${text(high)}`;
}

function within(level, interval) {
  return interval !== null && level >= interval.low - 1e-9 && level <= interval.high + 1e-9;
}

function clip(share) {
  return Math.min(1, Math.max(0, share));
}
