// The page of a node: what runs there, whose home it is, and what a drain would do.

import { isReport, path, read } from "./api.js";
import { badge, counted, details, h, link, onClick, section, table, tableOr } from "./dom.js";
import { HOMES, stateOf } from "./start.js";

const NODE_STATES = {
  ready: ["good", "accepts pods"],
  cordoned: ["warn", "cordoned: accepts no new pods"],
  notReady: ["bad", "not ready"],
  tainted: ["warn", "tainted: only pods that tolerate its taints"],
};

export async function node([name]) {
  const [of, homes] = await Promise.all([
    read(path(["nodes", name])),
    isReport ? read(HOMES) : read(path(["homes"], { limit: 500, node: name })),
  ]);
  const { json } = of;
  const living = homes.json.items.filter((it) => it.node === name);
  return {
    title: `Node ${name}`,
    at: of.at,
    stamp: JSON.stringify([json, living]),
    content: () => [
      h("h1", null, "Node ", h("span", { class: "name" }, name)),
      h("p", null,
        badge(...(NODE_STATES[json.condition] ?? ["plain", json.condition])),
        json.zone ? ` in zone ${json.zone}` : " in no zone",
        json.taints.length > 0 && `, taints: ${json.taints.join(", ")}`,
      ),
      nodeResources(json),
      homesOf(living),
      pods(json),
      !isReport && drain(name),
      details("labels", "Labels", () => table("Labels", ["Key", "Value"], Object.entries(json.labels))),
    ],
  };
}

function nodeResources(json) {
  const rows = json.resources.map((it) => [it.name, it.requested, it.allocatable]);
  const unread = "Homeport does not read requests here (explain: profile).";
  return section("Resources", tableOr(unread, "What its pods request", ["Resource", "Requested#", "Of#"], rows));
}

function nameOfOwner({ kind, namespace, name }) {
  return `${kind} ${namespace}/${name}`;
}

function homesOf(living) {
  const rows = living.map((it) => [nameOfOwner(it.owner), stateOf(it), it.machine.replaceAll("_", " "), it.policy]);
  return rows.length > 0 && section("Homes on this node", table("Homes on this node", ["Owner", "State", "Its pod is", "Policy"], rows));
}

function pods(json) {
  const rows = json.pods.map((it) => [
    link(["pod", it.namespace, it.name], `${it.namespace}/${it.name}`),
    it.workloadKind === "Pod"
      ? "none"
      : link(["workload", it.namespace, it.workloadKind, it.workload], `${it.workloadKind}/${it.workload}`),
  ]);
  const made = rows.length > 0 && table("Pods on this node", ["Pod", "Workload"], rows);
  return section("Pods", h("p", null, counted(json.podCount, "pod")), made);
}

function drain(name) {
  const answer = async () => (await read(path(["drain"], { node: name }))).json.items.flatMap(plan);
  const hint = h("p", { class: "hint" }, "Nothing is changed in the cluster.");
  return section("What if it is drained?", hint, onClick("Compute the drain", answer));
}

const OUTCOMES = { placed: "good", waiting: "bad", lost: "bad", blocked: "warn", notJudged: "plain", notReached: "plain" };

function plan(of) {
  const waiting = of.pods.filter((it) => it.outcome !== "placed");
  const rows = [...waiting, ...of.pods.filter((it) => it.outcome === "placed")].map((it) => [
    link(["pod", it.namespace, it.pod], `${it.namespace}/${it.pod}`),
    badge(OUTCOMES[it.outcome], it.outcome),
    it.then,
  ]);
  const spread = of.spread.map((it) => [it.workload, it.topologyKey, `${it.skewBefore} → ${it.skewAfter}, allowed ${it.maxSkew}`]);
  const budgets = of.budgets.map((it) => [`${it.namespace}/${it.name}`, ...[it.disruptionsAllowed, it.pods, it.blocked].map(String)]);
  const numbers = `${of.placed} placed again, ${of.waiting} would wait, ${of.lost} lost, ${of.blocked} blocked by budgets`;
  return [
    h("p", null, h("b", null, `${counted(of.evicted, "pod")} would leave: ${numbers}.`)),
    rows.length > 0 && table("Where each pod goes", ["Pod", "Outcome", "Then"], rows),
    budgets.length > 0 && table("PodDisruptionBudgets", ["Budget", "Evictions allowed now#", "Pods here#", "Blocked#"], budgets),
    of.homes.length > 0 &&
      table("Homes left behind", ["Owner", "Then"], of.homes.map((it) => [nameOfOwner(it.owner), it.then])),
    spread.length > 0 &&
      details("spread", "Spread before and after", () => table("Skew of each constraint", ["Workload", "Spread over", "Skew"], spread)),
  ].filter(Boolean);
}
