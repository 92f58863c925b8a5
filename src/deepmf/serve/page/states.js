// What stands where there is nothing to show: still empty, or failed; and what is said aloud.

import { byId, element } from "/page/elements.js";

/** Return what an empty view says: a title, and what to do. */
export function emptyState(title, text) {
  return element("div", { class: "state" }, element("p", { class: "what" }, title), element("p", {}, text));
}

/** Return what a view says that could not be filled, with a way to try again. */
export function failedState(error, again) {
  const retry = element("button", { type: "button", click: again }, "Try again");
  return element("div", { class: "state" }, element("p", { class: "what" }, "This did not work."), element("p", {}, error.message), retry);
}

/** Say something to those who listen to the page. */
export function say(text) {
  byId("said").textContent = text;
}

/** Show a sentence that went wrong, with a way to try again where there is one, until it is dismissed. */
export function alertOf(text, again = null, word = "Try again") {
  const shown = element("div", { class: "alert" }, element("p", {}, text));
  const close = () => shown.remove();
  if (again) shown.append(element("button", { type: "button", click: () => (close(), again()) }, word));
  shown.append(element("button", { type: "button", "aria-label": "Dismiss", class: "dismiss", click: close }, "×"));
  byId("alerts").replaceChildren(shown);
}

/** Run requests of which only the last counts: the one before is given up. */
export class Latest {
  async run(work) {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    try {
      return await work(controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return undefined;
      throw error;
    }
  }
}
