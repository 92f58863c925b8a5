// The card of a column: its id, what is predicted with its distribution, the control that rates it, and why.

import { DistributionDrawing, predictionWords, rangeText } from "/page/distribution.js";
import { element, label } from "/page/elements.js";
import { ratingControl } from "/page/rating.js";
import { Why } from "/page/why.js";
import { formatCount, formatPercent, idText, nameOf } from "/page/wording.js";

const MOST_FEATURES = 8;
const KINDS = { few: "with-few", many: "with-many", slider: "with-slider" };

export class ColumnCard {
  /** dismiss: called when the person does not want to see the column; without it there is no button. */
  constructor(column, scale, person, dismiss = null) {
    this.column = column;
    this.scale = scale;
    this.person = person;
    const name = nameOf(column);
    const title = name === idText(column) ? name : `${name} (${column})`;
    this.rating = ratingControl(scale, name, (value) => person.rate(column, value));
    this.drawing = new DistributionDrawing(scale);
    this.why = new Why(column, scale, person);
    this.rank = element("span", { class: "rank", "aria-hidden": "true" });
    this.note = element("span", { class: "note" });
    this.words = element("span", { class: "unseen" });
    this.expected = element("span", { class: "number" }, scale.interactions ? "" : "–");
    this.drawing.node.toggleAttribute("hidden", scale.interactions); // those found by a search are not predicted
    this.range = element("span", { class: "range" });
    this.basis = element("span", { class: "basis" }); // how many entries the prediction is made from
    const skip = dismiss && element("button", { type: "button", class: "skip-column", "aria-label": `Not interested in ${name}`, click: dismiss }, "Not interested");
    this.node = element(
      "li",
      { class: `card ${KINDS[scale.kind]}`, "data-column": column },
      this.rank,
      element("div", { class: "name" }, element("h3", {}, label(name, { title, class: "title" }), this.words), this.note, skip),
      element("div", { class: "figure" }, this.drawing.node, this.rating.node),
      element("div", { class: "value", "aria-hidden": "true" }, this.expected, this.range, this.basis),
      this.why.button,
      this.why.list,
    );
    this.showRating();
  }

  /** Show some facts about a column, and some of its features, if the model knows any. */
  showFacts(features, ...facts) {
    const said = [...facts, ...Object.values(features ?? {}).flat().slice(0, MOST_FEATURES)];
    this.note.replaceChildren(...said.flatMap((value, at) => [at ? " · " : "", label(String(value))]));
  }

  /** Show the place in a list, and how it changed since the list was drawn last. */
  showRank(rank, before) {
    this.rank.textContent = rank;
    const moved = before === null ? "new" : before > rank ? `▲ ${before - rank}` : before < rank ? `▼ ${rank - before}` : "";
    this.rank.dataset.moved = before === undefined ? "" : moved;
  }

  /** Show a prediction. */
  show(prediction) {
    this.expected.textContent = this.scale.expectedText(prediction.expected);
    this.words.textContent = `, ${predictionWords(this.scale, prediction)}`;
    const { interval } = prediction;
    this.range.textContent = interval ? rangeText(this.scale, interval) : "";
    this.range.title = interval ? `holds the value with a probability of ${formatPercent(interval.coverage)}` : "";
    this.basis.textContent = interval ? `from ${formatCount(this.person.values.size, "entry")}` : "";
    const { presence, liked, features } = prediction;
    if (typeof presence === "number" && typeof liked === "number") {
      this.showFacts(features, `taken: ${formatPercent(presence)}; liked, if taken: ${formatPercent(liked)}`);
    } else if (features) this.showFacts(features);
    this.drawing.node.removeAttribute("hidden");
    this.drawing.show(prediction);
    this.rating.suggest(prediction.expected);
    this.why.renew();
  }

  /** Show the value that the person gave, if any. */
  showRating() {
    const value = this.person.values.get(this.column) ?? null;
    this.rating.show(value);
    this.node.classList.toggle("rated", value !== null);
  }
}

/** Return cards as they look before there is anything to show. */
export function blankCards(count) {
  return Array.from({ length: count }, () => element("li", { class: "card blank", "aria-hidden": "true" }, element("span"), element("span")));
}
