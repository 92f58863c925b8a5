// The map: latents of rows and columns in two dimensions, and where the person stands among them.

import { byId, drawShape, element, label } from "/page/elements.js";
import { ask } from "/page/service.js";
import { Latest, emptyState, failedState } from "/page/states.js";
import { nameOf, nounOf } from "/page/wording.js";

const SIZE = 360;
const MARGIN = 16;
const NAMED = 5; // columns whose names are written
const LETTER = 6.8; // the usual width of one
const LONGEST = 24;
const MOST_SHARES = 3000; // of the distributions that an answer may bring along, which bounds its size

export class MapView {
  /**
   * best: the list of recommendations.
   * shares: how many probabilities each prediction comes with.
   * onChosen: gets a column that was clicked.
   */
  constructor(person, best, shares, onChosen) {
    this.person = person;
    this.best = best;
    this.onChosen = onChosen;
    this.node = byId("map");
    this.shares = shares;
    this.latest = new Latest();
    this.predicted = new Latest();
    person.addEventListener("change", () => this.mark());
    person.addEventListener("saved", () => this.place());
    best.addEventListener("drawn", () => this.mark());
  }

  /** Draw rows and columns; a model has one map. */
  async draw() {
    try {
      this.map = await ask("GET", "/v1/map");
    } catch (error) {
      this.map = null;
      const hasNone = error.status === 409;
      this.node.replaceChildren(hasNone ? emptyState("There is no map.", error.message) : failedState(error, () => this.draw()));
      return;
    }
    this.#fit();
    this.points = new Map(this.map.columns.map((column, at) => [column.column, this.#point(column, at)]));
    this.links = drawShape("path", { class: "links" });
    this.names = drawShape("g", { class: "names" });
    this.you = drawShape("g", { class: "you", visibility: "hidden" }, drawShape("circle", { class: "halo", r: 13 }), drawShape("circle", { r: 6 }), drawShape("text", { y: -12 }, "You"));
    const figure = drawShape("svg", { class: "map", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-labelledby": "self-title", "aria-describedby": "nearest" });
    figure.append(this.#rows(), this.links, drawShape("g", {}, ...this.points.values()), this.names, this.you);
    figure.addEventListener("click", (event) => event.target.dataset.column !== undefined && this.onChosen(event.target.dataset.column));
    this.nearest = element("p", { class: "hint", id: "nearest" });
    this.node.replaceChildren(figure, legend(), this.nearest);
    this.mark();
    await this.place();
  }

  /** Put the person where their entries put them. */
  async place() {
    if (!this.map) return;
    if (!this.person.isKnown) {
      this.at = null;
      this.you.setAttribute("visibility", "hidden");
      this.#tint([]);
      this.mark();
      return;
    }
    try {
      const found = await this.latest.run((signal) => ask("POST", "/v1/map", { row: this.person.row }, { signal }));
      if (found === undefined) return;
      this.at = this.#spot(found);
      this.you.setAttribute("visibility", "visible");
      this.you.style.transform = `translate(${this.at[0]}px, ${this.at[1]}px)`;
      this.mark();
      await this.#predict();
    } catch (error) {
      this.nearest.textContent = error.message;
    }
  }

  /** Mark what is rated and what is recommended, link the latter to the person, and write some names. */
  mark() {
    if (!this.map) return;
    const best = this.best.columns.slice(0, NAMED).filter((column) => this.points.has(column));
    for (const [column, point] of this.points) {
      point.classList.toggle("rated", this.person.values.has(column));
      point.classList.toggle("recommended", best.includes(column));
    }
    const ends = best.map((column) => this.spots.get(column));
    this.links.setAttribute("d", this.at ? ends.map(([x, y]) => `M${this.at[0]} ${this.at[1]}L${x} ${y}`).join("") : "");
    for (const column of best) this.points.get(column).parentNode.append(this.points.get(column)); // on top
    this.#write(best);
    this.nearest.replaceChildren(...this.#nearestWords());
  }

  /** Predict the columns that most rows have rated, and show by colour how much each would be liked. */
  async #predict() {
    const count = Math.floor(MOST_SHARES / this.shares);
    const pairs = this.map.columns.slice(0, count).map(({ column }) => ({ row: this.person.row, column }));
    const said = await this.predicted.run((signal) => ask("POST", "/v1/predict", { pairs, unknown: "fallback" }, { signal }));
    if (said !== undefined && this.person.isKnown) this.#tint(said.predictions);
  }

  /** Colour by rank, so that the whole range is used whatever the scale. */
  #tint(predictions) {
    for (const point of this.points.values()) point.classList.remove("tinted");
    const ranked = [...predictions].sort((one, other) => one.expected - other.expected);
    ranked.forEach(({ column }, at) => {
      const point = this.points.get(column);
      point.classList.add("tinted");
      point.style.setProperty("--depth", (0.1 + 0.8 * (at / ranked.length) ** 1.6).toFixed(3));
    });
  }

  #fit() {
    const all = [...this.map.rows, ...this.map.columns.map(({ x, y }) => [x, y])];
    const [xs, ys] = [all.map(([x]) => x), all.map(([, y]) => y)];
    this.middle = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
    const reach = Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), 1e-9);
    this.unit = (SIZE - 2 * MARGIN) / reach;
    this.spots = new Map(this.map.columns.map((column) => [column.column, this.#spot(column)]));
  }

  #spot({ x, y }) {
    const inside = (place) => Math.round(10 * Math.min(SIZE - 8, Math.max(8, place))) / 10;
    return [inside(SIZE / 2 + (x - this.middle[0]) * this.unit), inside(SIZE / 2 - (y - this.middle[1]) * this.unit)];
  }

  #rows() {
    const spots = this.map.rows.map(([x, y]) => this.#spot({ x, y }));
    return drawShape("path", { class: "rows", d: spots.map(([x, y]) => `M${x} ${y}h0`).join("") });
  }

  /** Columns come with those first that have most entries: these are drawn larger. */
  #point({ column }, at) {
    const [cx, cy] = this.spots.get(column);
    const r = 4.6 - 2.4 * (at / Math.max(1, this.map.columns.length - 1)) ** 0.5;
    return drawShape("circle", { class: "column", cx, cy, r, "data-column": column }, drawShape("title", {}, nameOf(column)));
  }

  /** Write names beside their points, as long as they do not cover one another. */
  #write(columns) {
    const taken = this.at ? [[this.at[0] - 16, this.at[1] - 26, 32, 40]] : [];
    const written = [];
    for (const column of columns) {
      const text = cut(nameOf(column));
      const [x, y] = this.spots.get(column);
      const width = LETTER * text.length;
      const boxes = [
        [x + 8, y - 7, width, 14],
        [x - 8 - width, y - 7, width, 14],
        [x - width / 2, y + 7, width, 14],
        [x - width / 2, y - 21, width, 14],
      ];
      const free = boxes.find((box) => box[0] > 2 && box[0] + width < SIZE - 2 && box[1] > 2 && box[1] < SIZE - 16 && !taken.some((other) => overlap(box, other)));
      if (!free) continue;
      taken.push(free);
      written.push(drawShape("text", { x: free[0] + width / 2, y: free[1] + 11, direction: "ltr" }, text));
    }
    this.names.replaceChildren(...written);
  }

  #nearestWords() {
    if (!this.at) return ["Rate something, and you appear here."];
    const away = ([x, y]) => (x - this.at[0]) ** 2 + (y - this.at[1]) ** 2;
    const near = [...this.spots].sort(([, one], [, other]) => away(one) - away(other)).slice(0, 3);
    const names = near.map(([column]) => label(nameOf(column), { class: "title" }));
    return ["Nearest to you: ", ...names.flatMap((name, at) => (at ? [", ", name] : [name])), "."];
  }
}

function legend() {
  const key = (...circles) => drawShape("svg", { viewBox: `0 0 ${10 * circles.length + 2} 12`, height: 12, "aria-hidden": "true" }, ...circles.map((of, at) => drawShape("circle", { cx: 6 + 10 * at, cy: 6, r: 4, ...of })));
  const kinds = [
    [key({ class: "column rows", r: 2 }), nounOf("row")],
    [key({ class: "column rated" }), "rated by you"],
    [key(...[0.15, 0.45, 0.95].map((depth) => ({ class: "depth", "fill-opacity": depth }))), `${nounOf("column")}: the stronger, the higher the prediction`],
  ];
  return element("ul", { class: "legend" }, ...kinds.map(([mark, words]) => element("li", {}, mark, words)));
}

function overlap([x, y, width, height], [left, top, w, h]) {
  return x < left + w && left < x + width && y < top + h && top < y + height;
}

function cut(text) {
  const letters = [...text];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : text;
}
