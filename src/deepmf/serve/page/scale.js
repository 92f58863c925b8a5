// The scale of values: its levels or its ends, where a value lies between them, and how it is written.

import { formatFixed, formatPercent, formatShort, formatSigned } from "/page/wording.js";

const FEW = 7;
const MOST_BUTTONS = 11;

export class Scale {
  /** described: the scale as the service describes it. */
  constructor({ levels, low, high, interactions }) {
    this.interactions = interactions; // entries have no values: one button says that there is one
    levels = interactions ? [1] : levels;
    this.levels = levels;
    this.low = low;
    this.high = high;
    const gaps = levels ? levels.slice(1).map((level, at) => level - levels[at]) : [(high - low) / 10];
    const finest = Math.min(...gaps, high - low || 1);
    this.decimals = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(finest) + 1e-9)));
  }

  /** What values are chosen with: a button for each of few or many levels, or a slider. */
  get kind() {
    if (this.levels === null || this.levels.length > MOST_BUTTONS) return "slider";
    return this.levels.length > FEW ? "many" : "few";
  }

  /** Return where a value lies from left (0) to right (1); levels lie in the middle of cells of the same width. */
  place(value) {
    if (this.interactions) return value; // a probability
    if (this.levels === null) return this.high > this.low ? (value - this.low) / (this.high - this.low) : 0.5;
    const last = this.levels.length - 1;
    const above = this.levels.findIndex((level) => level >= value);
    if (above <= 0) return (above < 0 ? last + 0.5 : 0.5) / (last + 1);
    const [from, to] = [this.levels[above - 1], this.levels[above]];
    return (above - 0.5 + (value - from) / (to - from)) / (last + 1);
  }

  /** Return the level nearest to a value. */
  nearest(value) {
    return this.levels.reduce((best, level) => (Math.abs(level - value) < Math.abs(best - value) ? level : best));
  }

  /** Return a level or another value that somebody gave. */
  valueText(value) {
    if (this.interactions) return value > 1 ? `${formatShort(value)} times` : "I have it";
    return formatShort(value);
  }

  /** Return an expected value, one digit finer than the scale. */
  expectedText(value) {
    if (this.interactions) return formatPercent(value);
    return formatFixed(value, this.decimals);
  }

  /** Return the effect of an entry on an expected value. */
  effectText(value) {
    if (this.interactions) return `${formatSigned(100 * value, 1)} %`;
    return formatSigned(value, this.decimals + 1);
  }
}
