// The first page: what waits, what is uneven, which homes are away, and the map of the nodes.

import { read, readIfNewer } from "./api.js";
import { badge, counted, h, link, section, since, table } from "./dom.js";
import { mapOf } from "./map.js";

export const HOMES = "homes?limit=500";
export const OVERVIEW = "overview";
export const NODES = "nodes";

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
        tile(pending.total, "pod waits for a node", "pods wait for a node"),
        tile(skews.total, "workload is spread unevenly", "workloads are spread unevenly"),
        tile(homes.total, "home is away or gone", "homes are away or gone"),
        h("li", null, h("b", null, nodes.json.total.toLocaleString("en")), ` ${nodes.json.total === 1 ? "node" : "nodes"}`),
      ),
      waiting(pending),
      uneven(skews),
      away(homes),
      mapOf(nodes.json, pending.items),
    ],
  };
}

function tile(number, one, many) {
  return h("li", { class: number ? "warn" : "good" }, h("b", null, number.toLocaleString("en")), ` ${number === 1 ? one : many}`);
}

function waiting(pending) {
  const rows = pending.items.map((it) => [
    link(["pod", it.namespace, it.name], `${it.namespace}/${it.name}`),
    h("span", { class: "short" }, since(it.since)),
    fits(it),
    why(it),
  ]);
  const more = pending.total - pending.items.length;
  return section(
    "Pods that wait for a node",
    rows.length === 0
      ? h("p", null, "No pod waits.")
      : table("The longest wait first", ["Pod", "Waits", "Nodes that fit", "Why it waits"], rows),
    more > 0 && h("p", null, `${counted(more, "more pod")} not shown.`),
  );
}

function fits(it) {
  if (!it.judged) return badge("plain", "not judged yet");
  return badge(it.feasible === 0 ? "bad" : "warn", `${it.feasible} of ${it.total}`);
}

function why(it) {
  if (it.gated) return "It has scheduling gates, so no scheduler tries it.";
  const refusal = it.reasons.length > 0 && `${it.plugin ? `${it.plugin}: ` : ""}${it.reasons.join(", ")}`;
  if (it.judged && it.feasible > 0)
    return [
      `Not for lack of a node: ${it.schedulerName} has not placed it yet.`,
      refusal && h("div", { class: "hint" }, `Other nodes: ${refusal}`),
    ];
  return [refusal, it.opens > 0 && h("div", { class: "hint" }, `Nothing else refuses ${it.opens} of these nodes.`)];
}

function uneven(skews) {
  const rows = skews.items.map((it) => [
    link(["workload", it.namespace, it.kind, it.name], `${it.namespace}/${it.name}`),
    it.kind,
    it.topologyKey,
    badge(it.whenUnsatisfiable === "DoNotSchedule" ? "bad" : "warn", `${it.skew}, allowed ${it.maxSkew}`),
    it.domains
      .slice(0, 4)
      .map((of) => `${of.name} ${of.pods}`)
      .join(", ") + (it.domainCount > 4 ? ", …" : ""),
  ]);
  return section(
    "Workloads that are spread unevenly",
    rows.length === 0
      ? h("p", null, "No workload is above its maxSkew.")
      : table("Workloads above their maxSkew, the worst first", ["Workload", "Kind", "Spread over", "Skew", "Pods by domain"], rows),
  );
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
    rows.length === 0
      ? h("p", null, "Every home is usable.")
      : table("Homes whose node accepts no pods, or no longer exists", ["Owner", "Kind", "Home", "State", "Policy"], rows),
    more > 0 && h("p", null, `${counted(more, "home")} more are not shown here.`),
  );
}

export function stateOf(home) {
  const mark = home.mark && `, ${home.mark}`;
  return `${home.state.replaceAll("_", " ")}${mark}${home.since && ` for ${since(home.since)}`}`;
}
