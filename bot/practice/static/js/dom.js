// Building the page: elements are made by name and filled with text, never from a string of HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element: h("button", {class: "btn", onclick: f}, "Go"). */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** A line icon from path data on a 20 by 20 field. */
export function icon(path, label) {
  const shape = s("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round" });
  return s("svg", { viewBox: "0 0 20 20", class: "icon", "aria-hidden": label ? null : "true", "aria-label": label, role: label ? "img" : null }, shape);
}

export const ICONS = {
  hash: "M7.5 3 6 17M14 3l-1.500 14M3.500 7.500h13.500M3 12.500h13.500",
  lock: "M5 9h10v8H5zM7 9V6a3 3 0 0 1 6 0v3",
  close: "M5 5l10 10M15 5L5 15",
  menu: "M3 5h14M3 10h14M3 15h14",
  code: "M7 5l-5 5 5 5M13 5l5 5-5 5",
  send: "M3 10l14-6-5 14-3-6z",
  clock: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14M10 6v4l3 2",
  eye: "M2 10s3-5 8-5 8 5 8 5-3 5-8 5-8-5-8-5M10 8a2 2 0 1 0 0 4 2 2 0 0 0 0-4",
  thread: "M4 4h12v9H9l-4 3v-3H4z",
  chevron: "M6 8l4 4 4-4",
  warn: "M10 3l8 14H2zM10 8v4M10 14.500v.1",
  file: "M5 3h7l3 3v11H5zM12 3v3h3",
};

/** Replace the children of `parent` by `wanted`, keeping nodes whose key has not changed, so that focus survives. */
export function keyed(parent, wanted) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let previous = null;
  for (const { key, make } of wanted) {
    const node = old.get(key) ?? make();
    node.dataset.key = key;
    old.delete(key);
    const place = previous ? previous.nextSibling : parent.firstChild;
    if (place !== node) parent.insertBefore(node, place);
    previous = node;
  }
  for (const node of old.values()) node.remove();
}

/** A short note at the bottom of the window. */
export function toast(words, kind = "info") {
  const note = h("div", { class: `toast ${kind}` }, words);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 6000);
}
