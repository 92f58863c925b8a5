// The person in front of the page: a row of their own, its entries, and every change of them.

import { ask, dismissedOf, entriesOf, randomId } from "/page/service.js";

const ROW = "deepmf.row";

/** Events: "change" when the entries look different, "saved" when the service knows, "failed" when it refused. */
export class Person extends EventTarget {
  /** kind: "text" or "number", what the rows of the model are called by. */
  constructor(kind) {
    super();
    this.kind = kind;
    this.values = new Map(); // of columns, in the order in which they were rated
    this.times = new Map(); // of columns, when they were rated
    this.isKnown = false; // whether the service has entries of this row
    this.row = this.#storedRow() ?? this.#newRow();
    this.waiting = Promise.resolve();
    this.others = new BroadcastChannel("deepmf"); // the same person in other windows
    this.others.addEventListener("message", () => this.#follow());
  }

  get count() {
    return this.values.size;
  }

  /** Read the entries that the service has. */
  async load() {
    const stored = this.#storedRow();
    if (stored === null) return this.#become(this.#newRow(), []);
    const entries = [];
    let offset = 0;
    try {
      while (offset !== null) {
        const page = await ask("GET", `${entriesOf(stored)}?limit=1000&offset=${offset}`);
        entries.push(...page.entries);
        offset = page.next_offset;
      }
    } catch (error) {
      if (error.code !== "unknown_row") throw error;
    }
    return this.#become(stored, entries);
  }

  /** Rate a column, or by null forget its entry; what is shown changes at once, and back if the service refuses. */
  rate(column, value) {
    const before = { value: this.values.get(column) ?? null, time: this.times.get(column) };
    const entry = value === null ? { value } : { value, time: new Date().toISOString() };
    this.#show(column, entry);
    this.waiting = this.waiting.then(() => this.#write(column, entry, before));
    return this.waiting;
  }

  /** Never recommend a column again, or take that back; return whether the service did so. */
  dismiss(column, isDismissed = true) {
    const written = this.waiting.then(() => this.#writeDismissal(column, isDismissed));
    this.waiting = written;
    return written;
  }

  /** Forget all entries; the next ones are of another row. */
  async forget() {
    await this.waiting;
    try {
      await ask("DELETE", entriesOf(this.row));
    } catch (error) {
      if (error.code !== "unknown_row") throw error;
    }
    localStorage.removeItem(ROW);
    this.#become(this.#newRow(), []);
    this.others.postMessage("forgotten");
  }

  /** Read the entries anew, after what was rated here is written. */
  #follow() {
    this.waiting = this.waiting.then(() => this.load()).catch((error) => this.#fail({ error }));
  }

  #fail(detail) {
    this.dispatchEvent(new CustomEvent("failed", { detail }));
  }

  async #write(column, entry, before) {
    try {
      const answer = await ask("PATCH", entriesOf(this.row), { entries: [{ column, ...entry }] });
      this.isKnown = answer.n_entries > 0;
      if (this.isKnown) localStorage.setItem(ROW, this.row);
      else localStorage.removeItem(ROW);
      this.others.postMessage("saved");
      this.dispatchEvent(new CustomEvent("saved", { detail: answer }));
    } catch (error) {
      this.#show(column, before);
      this.#fail({ error, column, value: entry.value });
    }
  }

  async #writeDismissal(column, isDismissed) {
    try {
      const answer = await ask("PATCH", dismissedOf(this.row), { [isDismissed ? "add" : "remove"]: [column] });
      this.others.postMessage("saved");
      this.dispatchEvent(new CustomEvent("saved", { detail: answer }));
      return true;
    } catch (error) {
      this.#fail({ error });
      return false;
    }
  }

  #show(column, { value, time }) {
    if (value === null) this.values.delete(column);
    else this.values.set(column, value);
    this.times.set(column, time);
    this.dispatchEvent(new CustomEvent("change"));
  }

  #become(row, entries) {
    const inOrder = entries.toSorted((one, other) => (one.time ?? "").localeCompare(other.time ?? ""));
    this.row = row;
    this.values = new Map(inOrder.map(({ column, value }) => [column, value]));
    this.times = new Map(inOrder.map(({ column, time }) => [column, time]));
    this.isKnown = entries.length > 0;
    this.dispatchEvent(new CustomEvent("change"));
    this.dispatchEvent(new CustomEvent("saved"));
  }

  #storedRow() {
    const row = localStorage.getItem(ROW);
    return row !== null && (this.kind === "text" || /^\d+$/.test(row)) ? row : null;
  }

  /** Return an id that nobody else has: where rows are numbers, one far above those that are counted. */
  #newRow() {
    if (this.kind === "text") return `guest-${randomId()}`;
    const [high, low] = crypto.getRandomValues(new Uint32Array(2));
    return String((1n << 62n) | (BigInt(high & 0x3fffffff) << 32n) | BigInt(low));
  }
}
