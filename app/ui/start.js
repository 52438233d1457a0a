// The first page: what waits, what is uneven, which homes are away, and the map of the nodes.

import { dataDate, dataTime, read, readIfNewer } from "./api.js";
import { badge, counted, h, link, section, since, some, tableOr } from "./dom.js";
import { mapOf } from "./map.js";

export const HOMES = "homes?limit=500";
export const OVERVIEW = "overview";
export const NODES = "nodes";
const HOME =
  "A home is the node to which a stateful workload, such as a virtual machine, returns. " +
  "It is away while that node takes no pods, and gone once the node no longer exists.";

export async function start() {
  const overview = await read(OVERVIEW);
  const { pending, skews, homes } = overview.json;
  const nodes = await readIfNewer(NODES, overview.json.nodes);
  return {
    title: "Cluster",
    at: Math.min(overview.at, nodes.at),
    health: overview.health,
    stamp: [overview.etag, nodes.etag].join(),
    content: () => [
      h("h1", null, "The cluster, as Homeport sees it"),
      h("ul", { class: "tiles" },
        tile(0, pending.total, "pod waits for a node", "pods wait for a node"),
        tile(1, skews.total, "workload is spread unevenly", "workloads are spread unevenly"),
        tile(2, homes.total, "home is away or gone", "homes are away or gone"),
        h("li", null, h("b", null, nodes.json.total.toLocaleString("en")), ` ${nodes.json.total === 1 ? "node" : "nodes"}`),
      ),
      h("p", { class: "hint" }, HOME),
      waiting(pending),
      uneven(skews),
      away(homes),
      mapOf(nodes.json, pending.items),
    ],
  };
}

/** Return a card that leads to a section of the page. `at`: position of the section. */
function tile(at, number, one, many) {
  const go = (event) => {
    event.preventDefault();
    document.querySelectorAll("main section")[at].focus();
  };
  const text = [h("b", null, number.toLocaleString("en")), ` ${number === 1 ? one : many}`];
  return h("li", { class: number ? "warn" : "good" }, h("a", { href: "#/", onclick: go }, text));
}

function waiting(pending) {
  const rows = pending.items.map((it) => [
    link(["pod", it.namespace, it.name], `${it.namespace}/${it.name}`),
    h("span", { class: "short" }, since(it.since)),
    fits(it),
    why(it),
  ]);
  const more = pending.total - pending.items.length;
  const caption = `Longest wait at the top${dataDate() && `. Waits are measured at ${dataDate()}, the date of the data`}`;
  return section(
    "Pods that wait for a node",
    unplaced(pending.items.filter(isUnplaced)),
    tableOr("No pod waits.", caption, ["Pod", "Waits", "Nodes that fit", "Why it waits"], rows),
    more > 0 && h("p", null, `${counted(more, "more pod")} not shown.`),
  );
}

function fits(it) {
  if (!it.judged) return badge("plain", "not judged yet");
  return badge(it.feasible === 0 ? "bad" : "warn", `${it.feasible} of ${it.total}`);
}

function isUnplaced(it) {
  return it.judged && !it.gated && it.feasible > 0;
}

/** Return what to do about pods that fit but have no node. */
function unplaced(pods) {
  const schedulers = some([...new Set(pods.map((it) => it.schedulerName))], 3);
  return pods.length > 0 && h("p", null,
    badge("warn", counted(pods.length, "pod")),
    ` ${pods.length === 1 ? "fits a node but is" : "fit a node but are"} not placed yet: check that ${schedulers} runs, `,
    "then read the events: ", h("code", null, "kubectl describe pod NAME -n NAMESPACE"),
    dataDate() && ". Events of that time may be gone.",
  );
}

function why(it) {
  if (it.gated) return "It has scheduling gates, so no scheduler tries it.";
  const more = it.total > it.feasible + it.opens ? " (and other reasons)" : "";
  const refusal = it.reasons.length > 0 && `${it.plugin ? `${it.plugin}: ` : ""}${it.reasons.join(", ")}${more}`;
  const judged = it.notJudged.length > 0 ? ", as far as judged here" : "";
  if (isUnplaced(it)) return [`Fits${judged}: see above.`, refusal && h("div", { class: "hint" }, `Other nodes: ${refusal}`)];
  return [refusal, it.opens > 0 && h("div", { class: "hint" }, `${counted(it.opens, "node")} would fit but for this${judged}.`)];
}

function uneven(skews) {
  const rows = skews.items.map((it) => [
    link(["workload", it.namespace, it.kind, it.name], `${it.namespace}/${it.name}`),
    it.kind,
    it.topologyKey,
    badge(it.whenUnsatisfiable === "DoNotSchedule" ? "bad" : "warn", `${it.skew}, allowed ${it.maxSkew}`),
    podsBy(it.domains.slice(0, 4).map((of) => [of.name, of.pods])) + (it.domainCount > 4 ? ", …" : ""),
  ]);
  const columns = ["Workload", "Kind", "Spread over", "Skew", "Pods by domain"];
  return section(
    "Workloads that are spread unevenly",
    tableOr("No workload is above its maxSkew.", "Workloads above their maxSkew, the worst first", columns, rows),
  );
}

/** Return domains with their numbers of pods as text. */
export function podsBy(domains) {
  return domains.map(([name, pods]) => `${name || "no zone"}\u00a0${pods}`).join(", ");
}

function away(homes) {
  const more = homes.total - homes.items.length;
  const rows = homes.items.map((it) => [
    it.pod ? link(["pod", it.owner.namespace, it.pod], `${it.owner.namespace}/${it.owner.name}`) : `${it.owner.namespace}/${it.owner.name}`,
    it.owner.kind,
    link(["node", it.node], it.node),
    badge(it.orphaned ? "bad" : "warn", stateOf(it)),
    it.policy,
  ]);
  return section(
    "Homes that are away or gone",
    tableOr("Every home is usable.", "Homes whose node takes no pods or is gone", ["Owner", "Kind", "Home", "State", "Policy"], rows),
    more > 0 && h("p", null, `${counted(more, "home")} more are not shown here.`),
  );
}

export function stateOf(home) {
  const mark = home.mark && `, ${home.mark}`;
  const isKnown = Date.parse(home.since) <= dataTime(); // the state in a file is seen first when the file is read
  return `${home.state.replaceAll("_", " ")}${mark}${isKnown ? ` for ${since(home.since)}` : ""}`;
}
