// The list of recommendations: it changes with every entry, and says what moved.

import { ColumnCard, blankCards } from "/page/column_card.js";
import { byId, element, label } from "/page/elements.js";
import { ServiceError, ask } from "/page/service.js";
import { Latest, emptyState, failedState, say, showAlert } from "/page/states.js";
import { nameOf, nounOf } from "/page/wording.js";

const PAGE = 8;
const REASONS = 2;
const MOVING = { duration: 380, easing: "cubic-bezier(.2, .7, .2, 1)" };

export class BestView {
  constructor(scale, person, filter) {
    this.scale = scale;
    this.person = person;
    this.filter = filter;
    filter.addEventListener("change", () => this.draw());
    this.list = byId("best");
    this.state = byId("best-state");
    this.more = byId("best-more");
    this.order = byId("best-order");
    this.order.querySelector("select").addEventListener("change", ({ target }) => {
      this.rankBy = target.value;
      this.draw();
    });
    this.cards = new Map();
    this.count = PAGE;
    this.latest = new Latest();
    this.more.addEventListener("click", () => {
      this.count += PAGE;
      this.draw();
    });
    this.glance = byId("glance");
    this.glance.addEventListener("click", () => byId("best-title").scrollIntoView({ behavior: "smooth" }));
    new IntersectionObserver(([seen]) => {
      this.isSeen = seen.isIntersecting;
      this.#showGlance();
    }).observe(this.list.parentNode);
    person.addEventListener("change", () => this.cards.forEach((card) => card.showRating()));
    person.addEventListener("saved", () => this.draw());
  }

  /** Ask for the best columns, show them at once, and then why. */
  async draw() {
    if (!this.person.isKnown) return this.#empty();
    if (!this.cards.size) this.list.replaceChildren(...blankCards(4));
    this.state.replaceChildren();
    const asked = { row: this.person.row, n: this.count, rank_by: this.rankBy, where: this.filter.where };
    try {
      await this.latest.run(async (signal) => {
        this.list.setAttribute("aria-busy", "true");
        const { best, rank_by: rankBy } = await ask("POST", "/v1/recommend", asked, { signal });
        this.order.hidden = !best.some(({ presence, liked }) => presence !== null && liked !== null);
        this.order.querySelector("select").value = rankBy;
        this.#show(best);
        await this.#explain(asked, signal);
      });
    } catch (error) {
      this.list.replaceChildren();
      this.cards.clear();
      this.state.replaceChildren(failedState(error, () => this.draw()));
    }
    return undefined;
  }

  async #explain(asked, signal) {
    try {
      const { best } = await ask("POST", "/v1/recommend", { ...asked, reasons: REASONS }, { signal });
      for (const { column, reasons } of best) if (reasons) this.cards.get(column)?.why.showShort(reasons);
    } catch (error) {
      // The list is right without reasons; whoever asks why is told what is wrong.
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  #empty() {
    this.latest.run(async () => undefined);
    this.cards.clear();
    this.list.replaceChildren();
    this.list.removeAttribute("aria-busy");
    this.more.hidden = true;
    this.#showGlance();
    byId("best-hint").hidden = true;
    this.order.hidden = true;
    this.filter.show(false);
    this.state.replaceChildren(
      element("div", { class: "invitation" }, preview(), emptyState(`Your list begins with your first ${this.scale.interactions ? nounOf("column") : "rating"}.`, `${this.scale.interactions ? "Pick" : "Rate"} one or two ${nounOf("column", 2)}. The list appears at once, is based on your entries only, and changes with each of them.`)),
    );
  }

  #show(best) {
    const before = [...this.cards.keys()];
    const places = new Map(before.map((column) => [column, this.cards.get(column).node.getBoundingClientRect().top]));
    const active = document.activeElement;
    const focused = before.findIndex((column) => this.cards.get(column).node.contains(active));
    const isFirst = before.length === 0;
    const cards = best.map((prediction, at) => {
      const card = this.cards.get(prediction.column) ?? this.#newCard(prediction.column);
      const place = before.indexOf(prediction.column);
      card.showRank(at + 1, isFirst || at >= before.length ? undefined : place < 0 ? null : place + 1);
      card.show(prediction);
      return card;
    });
    this.cards = new Map(cards.map((card) => [card.column, card]));
    this.list.replaceChildren(...cards.map((card) => card.node));
    this.list.removeAttribute("aria-busy");
    byId("best-hint").hidden = false;
    this.filter.show(true);
    this.more.hidden = best.length < this.count;
    this.#showGlance();
    this.#move(places);
    if (focused >= 0) this.#keepFocus(active, focused);
    if (best.length) say(`Recommendations are new. First: ${nameOf(best[0].column)}, predicted ${this.scale.expectedText(best[0].expected)}`);
    else this.state.replaceChildren(emptyState("Nothing is left to recommend.", `You have ${this.scale.interactions ? "picked" : "rated"} or dismissed every ${this.filter.where ? "such " : ""}${nounOf("column")}.`));
  }

  #newCard(column) {
    return new ColumnCard(column, this.scale, this.person, () => this.#dismiss(column));
  }

  /** Take a column off the list for good; the alert takes that back. */
  async #dismiss(column) {
    if (!(await this.person.dismiss(column))) return;
    showAlert(`${nameOf(column)} is no longer recommended to you.`, () => this.person.dismiss(column, false), "Undo");
  }

  /** On a phone the list lies below: its first line stands at the edge of the screen until the list is seen. */
  #showGlance() {
    const [first] = this.cards.values();
    this.glance.hidden = first === undefined || this.isSeen || byId("you").hidden;
    if (first === undefined) return;
    const number = element("span", { class: "number" }, first.expected.textContent);
    this.glance.replaceChildren("First for you", label(nameOf(first.column), { class: "title" }), number);
  }

  /** Let cards glide from where they were to where they are. */
  #move(places) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const { column, node } of this.cards.values()) {
      const from = places.get(column);
      const frames =
        from === undefined
          ? [{ opacity: 0 }, { opacity: 1 }]
          : [{ transform: `translateY(${from - node.getBoundingClientRect().top}px)` }, { transform: "none" }];
      node.animate(frames, MOVING);
    }
  }

  /** A card that was rated leaves the list: the one that is in its place gets the focus, not the top of the page. */
  #keepFocus(active, focused) {
    if (active.isConnected) return active.focus({ preventScroll: true });
    const cards = [...this.cards.values()];
    return cards[Math.min(focused, cards.length - 1)]?.rating.focus();
  }
}

/** Return three cards that are only hinted at. */
function preview() {
  return element("ol", { class: "cards hinted", "aria-hidden": "true" }, ...blankCards(3));
}
