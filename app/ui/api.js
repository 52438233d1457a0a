// Reads the JSON of Homeport, or the data of a report.

const known = new Map();
const inlined = document.getElementById("data");
const saved = inlined === null ? null : JSON.parse(inlined.textContent);

export const isReport = saved !== null;
export const reportTime = saved?.madeAt;
let fileTime = null;

/** An answer that is not a success. `message`: text for people. */
export class Refused extends Error {}

/** Return a path below api/v1 with its query. Parts are encoded. */
export function path(parts, query = {}) {
  const asked = new URLSearchParams(query).toString();
  return parts.map(encodeURIComponent).join("/") + (asked && `?${asked}`);
}

/** Return the answer that is known if it has this ETag, else read it. */
export async function readIfNewer(where, etag) {
  const before = known.get(where);
  return before?.etag === etag ? before : read(where);
}

/**
 * Return `{json, etag, at, health}`. `at`: when the service computed the answer, by the clock of the browser.
 * `health`: the age of the snapshot in seconds, and what is wrong; null if the answer does not say so.
 */
export async function read(where) {
  if (isReport) return fromReport(where);
  const before = known.get(where);
  const headers = before?.etag ? { "If-None-Match": before.etag } : {};
  let answer;
  try {
    answer = await fetch(`../api/v1/${where}`, { headers, cache: "no-store" });
  } catch {
    throw new Refused("Homeport does not answer. The page tries again.");
  }
  const at = Date.now() - 1000 * Number(answer.headers.get("Age") ?? 0);
  const age = answer.headers.get("Homeport-Snapshot-Age");
  const health = age && { age: Number(age), problem: decodeURIComponent(answer.headers.get("Homeport-Problem") ?? "") };
  if (answer.status === 304 && before) return Object.assign(before, { at, health });
  const json = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(json?.message ?? `Homeport answers ${answer.status}.`);
  const made = { json, etag: answer.headers.get("ETag"), at, health };
  if (made.etag) known.set(where, made);
  return made;
}

function fromReport(where) {
  if (!(where in saved.answers)) throw new Refused("This answer is not in the report. A running Homeport has it.");
  return { json: saved.answers[where], etag: "report", at: Date.parse(saved.madeAt), health: null };
}

/** Note when the file of a saved cluster was changed last, in RFC 3339. Without a file: null. */
export function noteFileTime(time) {
  fileTime = time ? Date.parse(time) : null;
}

/** Return the time at which ages and waits are measured: of the saved file, of the report, or now. */
export function dataTime() {
  return fileTime ?? (isReport ? Date.parse(saved.madeAt) : Date.now());
}

/** Return the date of the data as text; empty if the data is live. */
export function dataDate() {
  return isReport || fileTime !== null ? utc(dataTime()) : "";
}

export function utc(time) {
  return `${new Date(time).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}
