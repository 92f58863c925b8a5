// Why a prediction is what it is: the entries and features that pulled it up or down, in a line, and in full when it is opened.

import { drawShape, element, label, set } from "/page/elements.js";
import { ask } from "/page/service.js";
import { nameOf } from "/page/wording.js";

const MOST = 6;

let made = 0;

/** `button` is the line, `list` what it opens; a card has a place for each. */
export class Why {
  /** column: whose prediction is explained, to a person with entries. */
  constructor(column, scale, person) {
    this.column = column;
    this.scale = scale;
    this.person = person;
    this.asked = 0;
    this.list = element("div", { class: "reasons", id: `why-${(made += 1)}`, hidden: true });
    this.inShort = element("span", { class: "in-short" });
    this.button = element("button", { type: "button", class: "why", hidden: true, click: () => this.#toggle() });
    set(this.button, { "aria-expanded": "false", "aria-controls": this.list.id });
    this.button.append(element("span", { class: "word" }, "Why"), this.inShort);
  }

  /** Show that there is a prediction to explain; what was explained before is of other entries. */
  renew() {
    this.button.hidden = !this.person.isKnown;
    if (this.button.hidden) this.#close();
    else if (!this.list.hidden) this.#explain();
  }

  /** Show the strongest entries in the line that is always seen. */
  showShort(reasons) {
    const strongest = reasons.filter((reason) => Math.abs(reason.effect) >= 0.005).slice(0, 2);
    this.inShort.replaceChildren(
      ...strongest.map((reason) =>
        element("span", { class: "pull" }, arrow(reason.effect), label(nameOf(reason.column), { class: "title" })),
      ),
    );
  }

  #toggle() {
    if (!this.list.hidden) return this.#close();
    this.list.hidden = false;
    set(this.button, { "aria-expanded": "true" });
    return this.#explain();
  }

  #close() {
    this.list.hidden = true;
    set(this.button, { "aria-expanded": "false" });
  }

  async #explain() {
    const asked = (this.asked += 1);
    try {
      const said = await ask("POST", "/v1/explain", { row: this.person.row, column: this.column, n: MOST });
      if (asked !== this.asked) return;
      this.showShort(said.entries);
      this.list.replaceChildren(...this.#full(said));
    } catch (error) {
      this.list.replaceChildren(element("p", { class: "hint" }, error.message));
    }
  }

  #full({ entries, features, presence }) {
    const causes = [
      ...entries.map(({ column, value, effect }) => ({ name: nameOf(column), value: this.scale.valueText(value), effect })),
      ...features,
    ];
    if (causes.length === 0) return [element("p", { class: "hint" }, "None of your entries has an effect.")];
    const largest = Math.max(...causes.map((reason) => Math.abs(reason.effect)), 1e-9);
    const rows = causes.map(({ name, value, effect }) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, label(name, { class: "title" })),
        element("td", { class: "given" }, label(value)),
        element("td", { class: "pulled" }, bar(effect / largest)),
        element("td", { class: "effect" }, this.scale.effectText(effect)),
      ),
    );
    const entry = features.length ? "entry or feature" : "entry";
    const head = element(
      "tr",
      {},
      ...[`Your ${entry}`, "value"].map((text) => element("th", { scope: "col" }, text)),
      element("th", { scope: "col", colspan: 2 }, "effect"),
    );
    const notes = [`Effect: what the prediction would lose without the ${entry}.`];
    if (presence.length && !this.scale.interactions) notes.push(`You are likely to take it because of ${presence.map(({ column }) => nameOf(column)).join(", ")}.`);
    return [element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)), ...notes.map((note) => element("p", { class: "hint" }, note))];
  }
}

function arrow(effect) {
  const up = effect > 0;
  const shape = drawShape("svg", { viewBox: "0 0 10 10", class: up ? "up" : "down", role: "img", "aria-label": up ? "pulled up by" : "pulled down by" });
  shape.append(drawShape("path", { d: up ? "M5 1.5l4 7H1z" : "M5 8.5l-4-7h8z" }));
  return shape;
}

function bar(share) {
  const width = 50 * Math.abs(share);
  const figure = drawShape("svg", { class: share > 0 ? "up" : "down", width: "100%", height: 14, "aria-hidden": "true" });
  figure.append(
    drawShape("rect", { x: `${share > 0 ? 50 : 50 - width}%`, y: 3, width: `${width}%`, height: 8, rx: 2 }),
    drawShape("line", { x1: "50%", x2: "50%", y1: 0, y2: 14 }),
  );
  return figure;
}
