// The search: columns to rate, found by their ids, or to begin with those that most rows have rated.

import { ColumnCard, blankCards } from "/page/column_card.js";
import { byId } from "/page/elements.js";
import { ask } from "/page/service.js";
import { Latest, emptyState, failedState, say } from "/page/states.js";
import { formatCount, nounOf } from "/page/wording.js";

const PAGE = matchMedia("(max-width: 47.99rem)").matches ? 3 : 6; // on a phone, the list of recommendations follows
const TYPING = 160; // milliseconds

export class SearchView {
  constructor(scale, person) {
    this.scale = scale;
    this.person = person;
    this.input = byId("search");
    this.list = byId("found");
    this.state = byId("search-state");
    this.more = byId("search-more");
    this.cards = [];
    this.latest = new Latest();
    this.predicted = new Latest();
    this.input.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.search(), TYPING);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" || !this.cards.length) return;
      event.preventDefault();
      this.cards[0].rating.focus();
    });
    this.more.addEventListener("click", () => this.#add());
    person.addEventListener("change", () => this.cards.forEach((card) => card.showRating()));
    person.addEventListener("saved", () => this.predict());
  }

  /** Show what is found for the text in the box. */
  async search() {
    this.cards = [];
    this.offset = 0;
    this.more.hidden = true;
    this.state.replaceChildren();
    this.list.replaceChildren(...blankCards(3));
    await this.#add();
  }

  /** Predict the columns that are shown, for the entries as they are now. */
  async predict(cards = this.cards) {
    if (!cards.length || this.scale.interactions) return; // interactions have no values to predict
    const pairs = cards.map((card) => ({ row: this.person.row, column: card.column }));
    // Where the person has no entries, means of the columns are shown.
    const asked = { pairs, unknown: "fallback" };
    try {
      const said = await this.predicted.run((signal) => ask("POST", "/v1/predict", asked, { signal }));
      said?.predictions.forEach((prediction, at) => cards[at].show(prediction));
    } catch (error) {
      this.state.replaceChildren(failedState(error, () => this.predict()));
    }
  }

  async #add() {
    const text = this.input.value;
    const wanted = text ? PAGE : PAGE + this.person.count; // to begin with, without what is rated
    const query = new URLSearchParams({ search: text, offset: this.offset, limit: Math.min(1000, wanted) });
    try {
      const found = await this.latest.run((signal) => ask("GET", `/v1/columns?${query}`, undefined, { signal }));
      if (found !== undefined) this.#show(found, text);
    } catch (error) {
      this.list.replaceChildren();
      this.state.replaceChildren(failedState(error, () => this.search()));
    }
  }

  #show({ columns, total, next_offset: next }, text) {
    const isNew = ({ column }) => text !== "" || !this.person.values.has(column);
    const added = columns.filter(isNew).map(({ column, n_entries: count, features }) => {
      const card = new ColumnCard(column, this.scale, this.person);
      card.showFacts(features, formatCount(count, "entry"));
      return card;
    });
    if (this.offset === 0) this.list.replaceChildren();
    if (this.offset === 0 && text) say(`${formatCount(total, nounOf("column"))} found`);
    this.list.append(...added.map((card) => card.node));
    this.cards.push(...added);
    this.offset = next;
    this.more.hidden = next === null;
    byId("search-hint").textContent = text ? `${formatCount(total, nounOf("column"))} found` : `The ${nounOf("column", 2)} with the most entries.`;
    this.state.replaceChildren();
    if (!this.cards.length) this.state.append(text ? nothingFound(text) : emptyState(`You have ${this.scale.interactions ? "picked" : "rated"} them all.`, `There is no ${nounOf("column")} left.`));
    this.predict();
  }
}

function nothingFound(text) {
  return emptyState(`No such ${nounOf("column")}.`, `No name or id contains “${text}”. Try a shorter part of it.`);
}
