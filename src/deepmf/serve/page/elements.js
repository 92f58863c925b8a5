// Elements of the page, put together so that no text is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element; functions among the attributes are listeners, children that are text stay text. */
export function element(name, attributes = {}, ...children) {
  return fillNode(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function drawShape(name, attributes = {}, ...children) {
  return fillNode(document.createElementNS(SVG, name), attributes, children);
}

/** Return the element that has an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return a place for text of any direction, which leaves the direction of what is around it alone. */
export function label(text, attributes = {}) {
  return element("bdi", attributes, text);
}

/** Set attributes; null and false remove one, true sets it without a value. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

function fillNode(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else set(node, { [name]: value });
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
