// The person's own entries: each can be changed or taken back, and all can be forgotten.

import { byId, element, label, set } from "/page/elements.js";
import { ratingControl } from "/page/rating.js";
import { showAlert, emptyState, say } from "/page/states.js";
import { formatCount, nameOf } from "/page/wording.js";

export class EntriesView {
  constructor(scale, person) {
    this.scale = scale;
    this.person = person;
    this.list = byId("own");
    this.state = byId("own-state");
    this.forgetButton = byId("forget");
    this.dialog = byId("forget-dialog");
    this.lines = new Map();
    person.addEventListener("change", () => this.draw());
    this.forgetButton.addEventListener("click", () => this.dialog.showModal());
    byId("keep").addEventListener("click", () => this.dialog.close());
    byId("forget-now").addEventListener("click", () => this.#forget());
  }

  /** Show the entries, those rated last first. */
  draw() {
    const { values, times } = this.person;
    const active = document.activeElement;
    for (const [column, value] of values) {
      this.#line(column).rating.show(value);
      showTime(this.#line(column).time, times.get(column));
    }
    for (const column of this.lines.keys()) if (!values.has(column)) this.lines.delete(column);
    const held = this.list.contains(active);
    this.list.replaceChildren(...[...values.keys()].reverse().map((column) => this.#line(column).node));
    if (held) (active.isConnected ? active : byId("search")).focus({ preventScroll: true });
    byId("own-title").textContent = values.size ? `Your entries (${values.size})` : "Your entries";
    this.forgetButton.hidden = values.size === 0;
    this.state.replaceChildren();
    if (!values.size) this.state.append(emptyState("None yet.", "The service keeps your entries under a random id until you delete them."));
  }

  #line(column) {
    if (!this.lines.has(column)) this.lines.set(column, this.#newLine(column));
    return this.lines.get(column);
  }

  #newLine(column) {
    const name = nameOf(column);
    const rating = ratingControl(this.scale, name, (value) => this.person.rate(column, value));
    const remove = element("button", { type: "button", class: "dismiss", "aria-label": `Take back ${name}`, title: "Take back", click: () => this.person.rate(column, null) }, "×");
    const time = element("time", { hidden: true });
    const named = element("div", { class: "named" }, label(name, { class: "title", title: name }), time);
    const node = element("li", { class: "line", "data-column": column }, named, rating.node, remove);
    return { node, rating, time };
  }

  async #forget() {
    this.dialog.close();
    const count = this.person.count;
    try {
      await this.person.forget();
      say(`${formatCount(count, "entry")} forgotten`);
      byId("search").focus({ preventScroll: true });
    } catch (error) {
      showAlert(error.message, () => this.#forget());
    }
  }
}

/** Show when an entry was made: the day, and the full time as a hint; nothing without a date. */
function showTime(node, time) {
  node.hidden = time === undefined;
  if (node.hidden) return;
  const moment = new Date(time);
  set(node, { datetime: time, title: moment.toLocaleString() });
  node.textContent = moment.toLocaleDateString();
}
