// The operator's view: requests, entries learned, the model.

import { byId, drawShape, element } from "/page/elements.js";
import { ask } from "/page/service.js";
import { failedState } from "/page/states.js";
import { formatDuration, formatFixed, formatShort, formatWhole, nounOf } from "/page/wording.js";

const EVERY = 3000; // milliseconds
const KEPT = 60; // of the rates that are drawn

export class OperatorView {
  constructor() {
    this.node = byId("operator");
    this.rates = [];
    this.tiles = element("dl", { class: "tiles" });
    this.rate = element("div", { class: "panel" });
    this.model = element("div", { class: "panel" });
    this.state = element("div");
    this.node.append(
      element("div", { class: "lead" }, element("h1", {}, "How the service is doing"), element("p", {}, "Requests and entries since the start; updated every three seconds.")),
      this.state,
      this.tiles,
      element("div", { class: "panels" }, this.rate, this.model),
    );
  }

  /** Renew the figures as long as the view is seen. */
  start() {
    this.stop();
    this.draw();
    this.timer = setInterval(() => document.visibilityState === "visible" && this.draw(), EVERY);
  }

  stop() {
    clearInterval(this.timer);
  }

  async draw() {
    try {
      const [figures, model] = await Promise.all([ask("GET", "/v1/operator"), ask("GET", "/v1/model")]);
      this.state.replaceChildren();
      this.#count(figures);
      this.tiles.replaceChildren(...tiles(figures));
      this.rate.replaceChildren(...ratePanel(this.rates));
      this.model.replaceChildren(...modelPanel(model));
    } catch (error) {
      this.stop();
      this.state.replaceChildren(failedState(error, () => this.start()));
    }
  }

  #count({ n_requests: count }) {
    const now = performance.now() / 1000;
    if (this.last) this.rates.push(Math.max(0, count - this.last.count) / Math.max(now - this.last.at, 0.1));
    this.rates.splice(0, this.rates.length - KEPT);
    this.last = { at: now, count };
  }
}

function tiles(figures) {
  const shown = [
    ["requests", formatWhole(figures.n_requests)],
    ["failed", formatWhole(figures.n_failed)],
    ["entries learned", formatWhole(figures.n_learned)],
    ["up for", formatDuration(figures.seconds_up)],
    ["model version", formatWhole(figures.version.model)],
    ["data version", formatWhole(figures.version.data)],
  ];
  return shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
}

function ratePanel(rates) {
  const parts = [element("h2", {}, "Requests a second"), element("p", { class: "hint" }, "Since this view was opened, including its own requests.")];
  const most = Math.max(...rates, 1);
  const place = (rate, at) => `${((KEPT - rates.length + at) / (KEPT - 1)) * 300},${78 - (rate / most) * 70}`;
  const line = rates.map(place).join(" ");
  const figure = drawShape("svg", { class: "rates", viewBox: "0 0 300 80", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (rates.length > 1) {
    const [first, last] = [rates.length, 1].map((back) => ((KEPT - back) / (KEPT - 1)) * 300);
    figure.append(drawShape("polygon", { points: `${first},80 ${line} ${last},80` }), drawShape("polyline", { points: line }));
  }
  const now = rates.length ? `${formatFixed(rates.at(-1), 1)} now, ${formatFixed(Math.max(...rates), 1)} at most` : "Counting …";
  return [...parts, figure, element("p", { class: "hint" }, now)];
}

function modelPanel(model) {
  const { levels, low, high } = model.scale;
  const since = (count, trained) => (count > trained ? `${formatWhole(count)}, ${formatWhole(count - trained)} of them new` : formatWhole(count));
  const facts = [
    ["class", model.model],
    [nounOf("row", 2), since(model.n_rows, model.n_trained_rows)],
    [nounOf("column", 2), since(model.n_columns, model.n_trained_columns)],
    ["entries", formatWhole(model.n_entries)],
    ["scale", levels && levels.length <= 11 ? levels.map(formatShort).join(", ") : `${formatShort(low)} to ${formatShort(high)}${levels ? `, ${levels.length} levels` : ""}`],
    ["predicts in areas", model.areas.join(", ")],
    ["gives distributions", model.gives_distribution ? "yes" : "no"],
  ];
  const list = facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return [element("h2", {}, "The model"), element("dl", { class: "facts" }, ...list)];
}
