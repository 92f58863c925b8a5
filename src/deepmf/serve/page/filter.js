// The filter of recommendations: a feature of columns, and the category or the limits that it must have.

import { byId, element } from "/page/elements.js";
import { nounOf } from "/page/wording.js";

const TYPING = 300; // milliseconds

/** Events: "change" when the condition is another one. */
export class ColumnFilter extends EventTarget {
  /** features: those of columns, as `GET /v1/model` describes them; without any there is no filter. */
  constructor(features) {
    super();
    this.features = new Map(features.filter(hasChoice).map((feature) => [feature.name, feature]));
    this.node = byId("best-filter");
    this.node.hidden = true;
    this.limits = [];
    const names = [...this.features.keys()].map((name) => element("option", { value: name }, name));
    this.chosen = element("select", { "aria-label": "Feature", change: () => this.#choose() }, element("option", { value: "" }, `all ${nounOf("column", 2)}`), ...names);
    this.place = element("span");
    this.node.replaceChildren("Among", this.chosen, this.place);
  }

  /** The conditions as `/v1/recommend` takes them; undefined if there are none. */
  get where() {
    const feature = this.features.get(this.chosen.value);
    if (feature === undefined) return undefined;
    if (this.categories) return this.categories.value ? { [feature.name]: { any: [this.categories.value] } } : undefined;
    const limits = this.limits.filter(({ input }) => input.value !== "" && input.validity.valid);
    const read = (text) => (feature.kind === "number" ? Number(text) : text);
    return limits.length ? { [feature.name]: Object.fromEntries(limits.map(({ name, input }) => [name, read(input.value)])) } : undefined;
  }

  /** Show the filter beside a list, or hide it where there is no list. */
  show(isShown) {
    this.node.hidden = !isShown || this.features.size === 0;
  }

  #choose() {
    const feature = this.features.get(this.chosen.value);
    this.categories = null;
    this.limits = [];
    if (feature === undefined) this.place.replaceChildren();
    else if (feature.categories !== null) this.#showCategories(feature);
    else this.#showLimits(feature);
    this.#tell();
  }

  #showCategories({ name, categories }) {
    const options = categories.map((category) => element("option", { value: category }, category));
    this.categories = element("select", { "aria-label": name, change: () => this.#tell() }, element("option", { value: "" }, "any"), ...options);
    this.place.replaceChildren(this.categories);
  }

  #showLimits({ name, kind }) {
    const type = kind === "date" ? "date" : "number";
    this.limits = [["min", "from"], ["max", "to"]].map(([limit, word]) => {
      const input = element("input", { type, step: "any", "aria-label": `${name} ${word}`, placeholder: word, input: () => this.#wait() });
      return { name: limit, input };
    });
    this.place.replaceChildren(...this.limits.map(({ input }) => input));
  }

  #wait() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.#tell(), TYPING);
  }

  #tell() {
    this.dispatchEvent(new CustomEvent("change"));
  }
}

function hasChoice({ categories }) {
  return categories === null || categories.length > 0;
}
