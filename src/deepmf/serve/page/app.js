// The start of the page: the model is asked for, views are made for it, and tabs change between them.

import { BestView } from "/page/best_view.js";
import { byId } from "/page/elements.js";
import { EntriesView } from "/page/entries_view.js";
import { ColumnFilter } from "/page/filter.js";
import { OperatorView } from "/page/operator_view.js";
import { Person } from "/page/person.js";
import { Scale } from "/page/scale.js";
import { SearchView } from "/page/search_view.js";
import { ask, dropKey, onKeyNeeded } from "/page/service.js";
import { showAlert, failedState } from "/page/states.js";
import { formatCount, formatWhole, learnNouns, nounOf } from "/page/wording.js";

const VIEWS = ["you", "operator"];
const operator = new OperatorView();

onKeyNeeded(keyFromDialog);
setUpTabs();
start();

async function start() {
  try {
    await show(await ask("GET", "/v1/model"));
  } catch (error) {
    byId("lead").replaceChildren(failedState(error, () => location.reload()));
  }
}

async function show(model) {
  learnNouns(model.nouns);
  tellNouns(model);
  const scale = new Scale({ ...model.scale, interactions: !model.has_values });
  const person = new Person(model.ids.row);
  const search = new SearchView(scale, person);
  const best = new BestView(scale, person, new ColumnFilter(model.column_features));
  const entries = new EntriesView(scale, person);
  const tell = () => tellLead(model, person);
  person.addEventListener("change", tell);
  person.addEventListener("saved", ({ detail }) => detail && follow(model, detail.version));
  person.addEventListener("failed", ({ detail: { error, column, value } }) => {
    const again = () => person.rate(column, value);
    if (error.code === "role") showAlert(error.message, () => (dropKey(), again()), "Use another key");
    else showAlert(error.message, column === undefined ? null : again);
  });
  addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, dialog");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || byId("you").hidden) return;
    event.preventDefault();
    search.input.focus();
  });
  tell();
  tellVersions(model, model.version);
  entries.draw();
  await person.load();
  document.querySelector(".views").classList.toggle("returning", person.count > 0); // on a phone, their list comes first
  await search.search();
}

/** Use the words of the table from which the model was fitted; interactions are picked, not rated. */
function tellNouns(model) {
  const columns = nounOf("column", 2);
  const search = `Search ${columns}`;
  byId("search").placeholder = search;
  byId("search-label").textContent = search;
  byId("best-hint").textContent = `Best first, without the ${columns} that you have${model.has_values ? " rated" : ""}.`;
  if (model.has_values) return;
  byId("title").textContent = "Pick a few, see the rest.";
  byId("search-title").textContent = "Pick";
}

function tellLead(model, person) {
  const others = Math.max(0, model.n_columns - person.count);
  byId("lead").textContent = person.count
    ? `From ${formatCount(person.count, "entry")} of yours, ${model.model} ${model.has_values ? "predicts" : "ranks"} the other ${formatWhole(others)} ${nounOf("column", others)}. It was not trained again.`
    : `${model.model} was trained on ${formatCount(model.n_trained_rows, nounOf("row"))} and ${formatCount(model.n_trained_columns, nounOf("column"))}, and has never seen you. ${model.has_values ? "Rate" : "Pick"} a few ${nounOf("column", 2)}: it ${model.has_values ? "predicts" : "ranks"} the others at once, without training.`;
  byId("status").textContent = person.count ? formatCount(person.count, "entry") : "";
}

/** Show the versions of an answer; another model may have another scale and other columns. */
function follow(model, version) {
  if (version.model === model.version.model) tellVersions(model, version);
  else location.reload();
}

function tellVersions(model, version) {
  byId("versions").textContent = `${model.model}, model version ${version.model}, data version ${version.data}`;
}

/** Show the view that the address names, and let the keyboard move between tabs. */
function setUpTabs() {
  const tabs = VIEWS.map((view) => byId(`tab-${view}`));
  const choose = () => {
    const chosen = location.hash.slice(1) || "you";
    if (!VIEWS.includes(chosen)) return;
    VIEWS.forEach((view, at) => {
      byId(view).hidden = view !== chosen;
      tabs[at].setAttribute("aria-selected", String(view === chosen));
      tabs[at].tabIndex = view === chosen ? 0 : -1;
    });
    document.title = chosen === "operator" ? "deepmf: operator" : "deepmf";
    if (chosen === "operator") operator.start();
    else operator.stop();
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => (location.hash = VIEWS[at]));
    tab.addEventListener("keydown", ({ key }) => {
      if (key !== "ArrowLeft" && key !== "ArrowRight") return;
      location.hash = VIEWS[1 - at];
      tabs[1 - at].focus();
    });
  });
  addEventListener("hashchange", () => {
    choose();
    scrollTo(0, 0);
  });
  choose();
}

function keyFromDialog(reason) {
  const dialog = byId("key-dialog");
  byId("key-reason").textContent = reason;
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    byId("key-form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        dialog.close();
        resolve(byId("key").value.trim());
      },
      { once: true },
    );
  });
}
