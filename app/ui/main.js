// Shows the page of the route in the URL's fragment, and polls.

import { dataDate, isReport, noteFileTime, read, reportTime, utc } from "./api.js";
import { duration, h } from "./dom.js";
import { node } from "./node.js";
import { pod } from "./pod.js";
import { start } from "./start.js";
import { healthOf, profile, status, STATUS } from "./status.js";
import { workload } from "./workload.js";
import { zone, zones } from "./zone.js";

const POLL_MS = 5000;
const PAGES = {
  "": [start, true],
  pod: [pod],
  workload: [workload, true],
  node: [node, true],
  zone: [zone],
  zones: [zones],
  profile: [profile, true],
  status: [status, true],
};

const main = document.getElementById("page");
const fresh = document.getElementById("fresh");
let shown = { hash: null, stamp: null, at: 0, health: null };
let turn = 0;

function asked() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = where.split("/").map(decoded);
  return { page: PAGES[name], parts, query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Show the page of the route. `isPoll`: the route is the same, so only pages that cost little are read again. */
async function show(isPoll) {
  const mine = (turn += 1);
  const { hash } = location;
  const { page, parts, query } = asked();
  if (isPoll && (!page?.[1] || isReport)) return;
  if (!isPoll) main.setAttribute("aria-busy", "true");
  let made;
  try {
    made = page ? await page[0](parts, query) : notice("Not found", "There is no such page.");
  } catch (error) {
    if (isPoll) {
      shown.health = { age: 0, problem: error.message };
      return;
    }
    made = notice("No answer", error.message);
  }
  if (mine !== turn) return;
  shown.at = made.at;
  shown.health = made.health ?? null;
  if (hash === shown.hash && made.stamp === shown.stamp) return;
  draw(made, hash !== shown.hash);
  shown = { hash, stamp: made.stamp, at: made.at, health: made.health ?? null };
}

function notice(title, text) {
  const back = h("a", { href: "#/" }, "Back to the cluster");
  return { title, at: Date.now(), stamp: text, content: () => [h("h1", null, title), h("p", { role: "alert" }, text), back] };
}

function draw(made, isNew) {
  const open = new Set([...main.querySelectorAll("details[open]")].map((it) => it.dataset.key));
  const focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const place = linksTo(focused).indexOf(document.activeElement);
  document.title = `${made.title} - Homeport`;
  main.replaceChildren(...[made.content()].flat(Infinity).filter(Boolean));
  main.removeAttribute("aria-busy");
  for (const link of document.querySelectorAll("nav a")) {
    if (sectionOf(link.getAttribute("href")) === sectionOf(location.hash || "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isNew) {
    window.scrollTo(0, 0);
    if (shown.hash !== null) main.focus({ preventScroll: true });
    return;
  }
  for (const it of main.querySelectorAll("details")) {
    if (open.has(it.dataset.key)) it.fill();
  }
  linksTo(focused)[place]?.focus({ preventScroll: true });
}

function sectionOf(href) {
  const name = href.split("/")[1];
  return name === "zone" ? "zones" : name;
}

function linksTo(href) {
  return href === null ? [] : [...main.querySelectorAll("a[href]")].filter((it) => it.getAttribute("href") === href);
}

async function tell() {
  if (isReport) {
    const file = dataDate() === utc(reportTime) ? "" : `, saved cluster of ${dataDate()}`;
    fresh.replaceChildren(`Report of ${utc(reportTime)}${file}`);
    return;
  }
  const failed = (error) => ({ age: 0, problem: error.message });
  const health = shown.health ?? (await read(STATUS).then((it) => healthOf(it.json), failed));
  const computed = `computed ${duration((Date.now() - shown.at) / 1000)} ago`;
  const saved = `saved cluster, not live${dataDate() && `: file of ${dataDate()}`}`;
  const text = health.isSaved ? saved : `snapshot ${duration(health.age)} old, ${computed}`;
  const next = health.problem ? `■ ${health.problem} (${text})` : text;
  fresh.className = health.problem ? "bad" : "";
  if (fresh.textContent !== next) fresh.replaceChildren(next);
}

async function poll() {
  if (!document.hidden) {
    await show(true);
    await tell();
  }
  setTimeout(poll, POLL_MS);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => show(false));
await read(STATUS).then((it) => noteFileTime(it.json.saved_at), () => null);
await show(false);
await tell();
if (!isReport) setTimeout(poll, POLL_MS);
