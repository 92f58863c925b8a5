// The control that rates a column: a button for each level, or a slider where there are too many or none.

import { element, set } from "/page/elements.js";

/** Return the control for a scale; `onRate` gets a value, or null where an entry is taken back. */
export function ratingControl(scale, name, onRate) {
  return scale.kind === "slider" ? new ValueSlider(scale, name, onRate) : new LevelButtons(scale, name, onRate);
}

/** One stop of the Tab key; arrows move between levels, and only Enter, Space or a click rates. */
class LevelButtons {
  constructor(scale, name, onRate) {
    this.scale = scale;
    this.buttons = scale.levels.map((level) =>
      element(
        "button",
        {
          type: "button",
          class: "level",
          "aria-pressed": "false",
          click: () => onRate(level === this.value ? null : level),
        },
        scale.valueText(level),
      ),
    );
    this.node = element("div", { class: "levels", role: "group", "aria-label": `Rate ${name}`, keydown: (event) => this.#move(event) });
    this.node.append(...this.buttons);
    this.show(null);
  }

  /** Show which level is chosen, if any. */
  show(value) {
    this.value = this.scale.interactions && value !== null ? 1 : value;
    const chosen = this.scale.levels.indexOf(this.value);
    this.buttons.forEach((button, at) => {
      set(button, { "aria-pressed": String(at === chosen), tabindex: at === Math.max(chosen, 0) ? 0 : -1 });
    });
  }

  /** What is predicted is seen above the buttons. */
  suggest() {}

  focus() {
    this.buttons.find((button) => button.tabIndex === 0).focus();
  }

  #move(event) {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const from = this.buttons.indexOf(document.activeElement);
    const to = Math.min(this.buttons.length - 1, Math.max(0, from + steps[event.key]));
    this.buttons.forEach((button, at) => set(button, { tabindex: at === to ? 0 : -1 }));
    this.buttons[to].focus();
  }
}

/** The slider chooses, the button rates: no value on the way there counts. */
class ValueSlider {
  constructor(scale, name, onRate) {
    this.scale = scale;
    const [low, high, step] = scale.levels ? [0, scale.levels.length - 1, 1] : [scale.low, scale.high, "any"];
    this.slider = element("input", { type: "range", min: low, max: high, step, "aria-label": `Value for ${name}`, input: () => this.#touch() });
    this.rate = element("button", { type: "button", class: "rate", click: () => onRate(this.#chosen()) });
    this.clear = element("button", { type: "button", class: "clear", hidden: true, click: () => onRate(null) }, "Clear");
    this.node = element("div", { class: "slider", role: "group", "aria-label": `Rate ${name}` }, this.slider, this.rate, this.clear);
    this.show(null);
  }

  show(value) {
    if (value !== null) this.#put(value);
    this.value = value;
    this.clear.hidden = value === null;
    this.#tell();
  }

  /** Begin with what is predicted, as long as nobody has chosen. */
  suggest(expected) {
    if (this.value !== null || this.isTouched) return;
    this.#put(expected);
    this.#tell();
  }

  focus() {
    this.slider.focus();
  }

  #put(value) {
    this.slider.value = this.scale.levels ? this.scale.levels.indexOf(this.scale.nearest(value)) : value;
  }

  #chosen() {
    const at = Number(this.slider.value);
    if (this.scale.levels) return this.scale.levels[at];
    const rounded = Number(at.toFixed(this.scale.decimals)); // a slider has no finer places
    return Math.min(this.scale.high, Math.max(this.scale.low, rounded));
  }

  #touch() {
    this.isTouched = true;
    this.#tell();
  }

  #tell() {
    const text = this.scale.valueText(this.#chosen());
    this.rate.textContent = this.value === this.#chosen() ? `Rated ${text}` : `Rate ${text}`;
    set(this.slider, { "aria-valuetext": text });
    this.rate.classList.toggle("chosen", this.value === this.#chosen());
  }
}
