// What if a zone is lost: three answers side by side, because people mix them up.

import { path, read } from "./api.js";
import { badge, counted, h, link, section, some, table } from "./dom.js";
import { NODES, podsBy } from "./start.js";

const VARIANTS = [
  ["tainted", "nodes unreachable", "An outage: the nodes still exist but are tainted. The zone still counts for spread."],
  ["gone", "nodes deleted", "The nodes no longer exist. The zone no longer counts for spread."],
  ["full", "no room to restart", "All pods there end, and the nodes have no room for new ones. The zone still counts for spread."],
];
const TEMPLATED = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "VirtualMachine"];
const RESTARTS = "A change of the template restarts all its pods.";
const COSTS = { Deployment: RESTARTS, StatefulSet: RESTARTS, Job: "Only a new Job can have another template." };

const LIMITS = "Pods that wait already are not counted. Nothing is changed in the cluster.";
const UNTIL = "No new pod is made until the node is deleted or gets the out-of-service taint.";

export async function zones([key]) {
  return page(`Lose a ${key}`, await read(path(["lose"], { key })), (json) => [
    h("h1", null, "What if a zone is lost?"),
    h("p", null, "The worst zone first. Choose one to see each workload. ", LIMITS),
    explained(),
    table(
      `Zones by ${key}`,
      ["Zone", "Nodes#", "Pods#", ...VARIANTS.map(([, name]) => `Waiting if ${name}`)],
      json.domains.map((it) => [
        ...[link(["zone", key, it.value], it.value), String(it.nodes), String(it.pods)],
        ...VARIANTS.map(([variant]) => outcome(it[variant])),
      ]),
    ),
  ]);
}

export async function zone([key, value]) {
  const [of, nodes] = await Promise.all([read(path(["lose"], { key, value })), read(NODES)]);
  const names = key === nodes.json.zoneKey ? nodes.json.zones.map((it) => it.name).filter(Boolean) : [];
  return page(`Lose ${value}`, of, (json) =>
    json.domains.flatMap((it) => [
      h("h1", null, "What if ", h("span", { class: "name" }, value), " is lost?"),
      h("p", null,
        "Choose a zone: ",
        names.map((name) => [name === value ? h("b", null, name) : link(["zone", key, name], name), " · "]),
        link(["zones", key], "compare all zones"),
      ),
      h("p", null, `${counted(it.nodes, "node")} with ${counted(it.pods, "pod")}. `, LIMITS),
      answer(value, it),
      explained(),
      summary(it),
      workloads(it),
    ]),
  );
}

function page(title, { json, at }, content) {
  return { title, at, stamp: JSON.stringify(json), content: () => content(json) };
}

function answer(value, it) {
  const of = it.tainted;
  if (of === null) return null;
  const waits = of.waiting + of.notEnded + of.notReached;
  const forever = it.workloads.filter((one) => one.tainted?.notRecreated > 0).map(nameOf).concat(it.moreWorkloads > 0 ? "…" : []);
  const stuck = it.workloads.filter((one) => one.tainted?.waiting + one.tainted?.notEnded > 0);
  return [
    h("p", { class: "verdict" },
      badge(waits + of.notRecreated > 0 ? "bad" : "good", `If ${value} becomes unreachable`),
      `: of ${counted(of.lost, "pod")} hit${evicted(of)}, ${of.placed} would fit elsewhere, ${waits} would wait, `,
      `and ${of.notRecreated} would be lost for good${forever.length > 0 ? `: ${some(forever, 3)}` : ""}.`,
    ),
    stuck.length > 0 && h("ul", null, stuck.slice(0, 5).map(line)),
  ];
}

function line(of) {
  const { waiting, notEnded } = of.tainted;
  return h("li", null,
    linkTo(of),
    waiting > 0 && [`: ${waiting} would wait. `, cure(of.tainted, of.kind)],
    notEnded > 0 && `: ${notEnded} would stay Terminating. ${UNTIL}`,
  );
}

function evicted(of) {
  return of.evicted > 0 ? ` and ${of.evicted} evicted on other nodes` : "";
}

function nameOf(of) {
  return `${of.kind === "Pod" ? "" : `${of.kind} `}${of.namespace}/${of.name}`;
}

function linkTo(of) {
  return link(of.kind === "Pod" ? ["pod", of.namespace, of.name] : ["workload", of.namespace, of.kind, of.name], nameOf(of));
}

function cure({ change, changesTried }, kind) {
  if (change === null) return `${changesTried ? "No change of one field that was tried helps. " : ""}Its page explains its pods.`;
  const isSpec = change.field.startsWith("spec.");
  const template = kind === "CronJob" ? "spec.jobTemplate.spec.template." : TEMPLATED.includes(kind) ? "spec.template." : "";
  const field = `${isSpec ? template : ""}${change.field}`.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);
  const cost = isSpec && COSTS[kind] && ` ${COSTS[kind]}`;
  return ["Would help: ", h("code", null, field, `: ${change.value}`), `; then ${change.waiting} would wait.`, cost];
}

function explained() {
  return h("dl", null, VARIANTS.map(([, name, text]) => [h("dt", null, name), h("dd", null, text)]));
}

function outcome(of) {
  if (of === null) return badge("plain", "not computed");
  const more = of.notEnded > 0 ? ` (+${of.notEnded} Terminating)` : "";
  if (of.notReached > 0) return badge("plain", `${of.waiting}${more}, and ${of.notReached} not computed`);
  return badge(of.waiting + of.notEnded > 0 ? "bad" : "good", `${of.waiting}${more}`);
}

function summary(it) {
  const rows = VARIANTS.map(([variant, name]) => [name, ...numbersOf(it[variant])]);
  return section(
    "All pods",
    h("p", { class: "hint" }, "Lost for good: no controller makes the pod again on another node."),
    table("Pods of the zone in each case", ["If", "Pods hit#", "Fit elsewhere#", "Waiting", "Lost for good"], rows),
  );
}

function numbersOf(of) {
  return of === null ? ["–", "–", "–", "–"] : [String(of.lost), String(of.placed), outcome(of), forGood(of.notRecreated)];
}

function forGood(number) {
  return badge(number > 0 ? "bad" : "good", String(number));
}

function workloads(it) {
  const stories = (of) => VARIANTS.map(([variant]) => story(of[variant], of.kind));
  const rows = it.workloads.map((of) => [linkTo(of), h("div", null, String(of.running), where(of)), ...stories(of)]);
  const columns = ["Workload", "Running now", ...VARIANTS.map(([, name]) => `If ${name}`)];
  return section("Each workload", table("Workloads with pods in the zone", columns, rows));
}

function story(of, kind) {
  if (of === null) return "–";
  const gone = of.notRecreated > 0 && [", ", forGood(of.notRecreated), " lost for good"];
  return h("div", null, `${of.lost} hit${evicted(of)}, ${of.placed} fit elsewhere, waiting: `, outcome(of), gone, change(of, kind));
}

function where({ running, runningIn = {} }) {
  const domains = Object.entries(runningIn);
  const left = running - domains.reduce((sum, [, pods]) => sum + pods, 0);
  const rows = left > 0 && domains.length > 0 ? [...domains, ["elsewhere", left]] : domains;
  return rows.map((it) => h("div", { class: "hint short" }, podsBy([it])));
}

function change(of, kind) {
  if (of.waiting === 0) return of.notEnded > 0 && h("p", { class: "hint" }, UNTIL);
  const why = of.reasons.map((it) => `${it.plugin}: ${it.reasons.join(", ")}`).join("; ");
  return [h("p", { class: "hint" }, why), h("p", null, cure(of, kind))];
}
