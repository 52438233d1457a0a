// Reads the JSON of Homeport, or the data of a report.

const known = new Map();
const inlined = document.getElementById("data");
const saved = inlined === null ? null : JSON.parse(inlined.textContent);

export const isReport = saved !== null;

/** An answer that is not a success. `message`: text for people. */
export class Refused extends Error {}

/** Return a path below api/v1 with its query. Parts are encoded. */
export function path(parts, query = {}) {
  const asked = new URLSearchParams(query).toString();
  return parts.map(encodeURIComponent).join("/") + (asked && `?${asked}`);
}

/** Return `{json, etag, at}`: `at` is when the service computed the answer, by the clock of the browser. */
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
  if (answer.status === 304 && before) {
    before.at = at;
    return before;
  }
  const json = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(json?.message ?? `Homeport answers ${answer.status}.`);
  const made = { json, etag: answer.headers.get("ETag"), at };
  if (made.etag) known.set(where, made);
  return made;
}

function fromReport(where) {
  if (!(where in saved.answers)) throw new Refused("This answer is not in the report. A running Homeport has it.");
  return { json: saved.answers[where], etag: "report", at: Date.parse(saved.madeAt) };
}

export function reportTime() {
  return saved.madeAt;
}
