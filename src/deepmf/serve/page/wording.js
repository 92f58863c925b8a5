// Format ids, names, numbers and times.

const WHOLE = new Intl.NumberFormat("en");

const names = new Map(); // of columns, by their ids
const nouns = { row: "row", column: "column" };

/** Remember the words for a row and a column, such as user and film. */
export function learnNouns(words) {
  Object.assign(nouns, words);
}

/** Return the word for a row or a column, singular or plural. */
export function nounOf(axis, count = 1) {
  return count === 1 ? nouns[axis] : pluralOf(nouns[axis]);
}

/** Remember the names of all columns in an answer of the service. */
export function learnNames(content) {
  if (content === null || typeof content !== "object") return;
  if (typeof content.column === "string" && content.column_name) names.set(content.column, content.column_name);
  Object.values(content).forEach(learnNames);
}

/** Return the name of a column, or its id where it has none. */
export function nameOf(column) {
  return names.get(column) ?? idText(column);
}

/** Return an id as visible text: an id of blanks is quoted. */
export function idText(id) {
  return id.trim() === "" ? JSON.stringify(id) : id;
}

/** Return a count with its noun, singular or plural. */
export function formatCount(count, noun) {
  return `${formatWhole(count)} ${count === 1 ? noun : pluralOf(noun)}`;
}

function pluralOf(noun) {
  if (noun === "person") return "people";
  if (/[^aeiou]y$/.test(noun)) return `${noun.slice(0, -1)}ies`;
  return /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : `${noun}s`;
}

/** Return a whole number with separators. */
export function formatWhole(count) {
  return WHOLE.format(count);
}

/** Return a number with some decimals and a true minus sign. */
export function formatFixed(value, decimals) {
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** Return a number with its sign. */
export function formatSigned(value, decimals) {
  const text = formatFixed(value, decimals);
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

/** Return a value with at most six digits. */
export function formatShort(value) {
  const rounded = Number(value.toPrecision(6));
  return (Math.abs(rounded) >= 1e6 ? rounded.toExponential() : String(rounded)).replace("-", "−");
}

/** Return a share in percent. */
export function formatPercent(share) {
  return `${Math.round(100 * share)} %`;
}

/** Return a duration in its two largest units. */
export function formatDuration(seconds) {
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor((seconds % 86400) / 3600), "h"],
    [Math.floor((seconds % 3600) / 60), "min"],
    [Math.floor(seconds % 60), "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  const shown = first < 0 ? parts.slice(-1) : parts.slice(first, first + 2);
  return shown.map(([count, unit]) => `${count} ${unit}`).join(" ");
}
