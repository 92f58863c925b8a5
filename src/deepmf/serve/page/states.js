// Empty and failed views, alerts, announcements to screen readers, and requests that replace each other.

import { byId, element } from "/page/elements.js";

/** Return the content of an empty view: a title, and what to do. */
export function emptyState(title, text) {
  return element("div", { class: "state" }, element("p", { class: "what" }, title), element("p", {}, text));
}

/** Return the content of a view that failed to load, with a button to try again. */
export function failedState(error, again) {
  const retry = element("button", { type: "button", click: again }, "Try again");
  return element("div", { class: "state" }, element("p", { class: "what" }, "This did not work."), element("p", {}, error.message), retry);
}

/** Announce something to screen readers. */
export function say(text) {
  byId("said").textContent = text;
}

/** Show an error until it is dismissed, with a button to try again if that is possible. */
export function showAlert(text, again = null, word = "Try again") {
  const shown = element("div", { class: "alert" }, element("p", {}, text));
  const close = () => shown.remove();
  if (again) shown.append(element("button", { type: "button", click: () => (close(), again()) }, word));
  shown.append(element("button", { type: "button", "aria-label": "Dismiss", class: "dismiss", click: close }, "×"));
  byId("alerts").replaceChildren(shown);
}

/** Runs requests of which only the last counts: a new one aborts the one before. */
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
