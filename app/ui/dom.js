// Makes elements. Texts become text nodes, never markup, so that no name in the cluster can add an element.

import { dataTime } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

/** Return an element of HTML. `props`: attributes, or listeners named on…; null and false leave an attribute out. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Return an element of SVG. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

/** Return the fragment of a route: its parts, each encoded. */
export function route(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function link(parts, ...children) {
  return h("a", { href: route(...parts) }, ...children);
}

/** Return a section with a heading. A script can give it the focus. */
export function section(title, ...children) {
  return h("section", { tabindex: "-1" }, h("h2", null, title), ...children);
}

/** Return a table. `columns`: headings; a heading that ends with # is a number, and is shown on the right. */
export function table(caption, columns, rows) {
  const isNumber = columns.map((it) => it.endsWith("#"));
  const heads = columns.map((it, at) => h("th", { scope: "col", class: isNumber[at] && "number" }, it.replace(/#$/, "")));
  const body = rows.map((row) => h("tr", null, row.map((cell, at) => h("td", { class: isNumber[at] && "number" }, cell))));
  const made = h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, heads)), h("tbody", null, body));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

/** Return a table, or a text if it has no rows. */
export function tableOr(text, caption, columns, rows) {
  return rows.length === 0 ? h("p", null, text) : table(caption, columns, rows);
}

/** Return a button and a place for the answer, which `answer` computes on a click. */
export function onClick(label, answer) {
  const result = h("div", { "aria-live": "polite" });
  const ask = async () => {
    result.replaceChildren("Computing…");
    result.replaceChildren(...(await answer().catch((error) => [error.message])));
  };
  return [h("p", null, h("button", { onclick: ask }, label)), result];
}

/** Return details that are filled when they are opened first. `key`: stays the same when the page is drawn again. */
export function details(key, summary, content) {
  const made = h("details", { "data-key": key }, h("summary", null, summary));
  made.fill = () => {
    made.open = true;
    if (made.childElementCount === 1) made.append(...[content()].flat());
  };
  made.addEventListener("toggle", () => made.open && made.fill());
  return made;
}

/** Return a bar of `value` out of `most`, for the eye only: the number stands beside it as text. */
export function bar(value, most, kind = "") {
  const width = most > 0 ? Math.min(100, (100 * value) / most) : 0;
  const rect = s("rect", { x: 0, y: 0, width, height: 10, class: `fill ${kind}` });
  const back = s("rect", { x: 0, y: 0, width: 100, height: 10, class: "back" });
  return s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, back, rect);
}

/** Return a word with a shape, so that a state does not depend on colour. `kind`: good, warn, bad or plain. */
export function badge(kind, word) {
  const shape = { good: "●", warn: "▲", bad: "■", plain: "○" }[kind];
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, `${shape} `), word);
}

export function counted(number, one, many = `${one}s`) {
  return `${number < 1000 ? number : number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Return the first names of a list as text, and the number of the others. */
export function some(names, most = 5) {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Return an age as kubectl writes it, from a time in RFC 3339. */
export function since(time, now = dataTime()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  return Number.isFinite(seconds) ? duration(seconds) : "unknown";
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400).toLocaleString("en")} days`;
}
