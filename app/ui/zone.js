// What if a zone is lost: three answers side by side, because people mix them up.

import { isReport, path, read } from "./api.js";
import { badge, bar, counted, details, h, link, section, table } from "./dom.js";

const VARIANTS = [
  ["tainted", "nodes unreachable", "An outage: the nodes still exist but are tainted. The zone still counts for spread."],
  ["gone", "nodes deleted", "The nodes no longer exist. The zone no longer counts for spread."],
  ["full", "no room left", "All pods must leave the nodes, and none fits there again. The zone still counts for spread."],
];

export async function zones([key]) {
  return page(`Lose a ${key}`, await read(path(["lose"], { key })), (json) => [
    h("h1", null, "What if a zone is lost?"),
    h("p", null, "The worst zone first. Choose one to see each workload. Nothing is changed in the cluster."),
    explained(),
    table(
      `Zones by ${key}`,
      ["Zone", "Nodes#", "Pods#", ...VARIANTS.map(([, name]) => `Waiting if ${name}`)],
      json.domains.map((it) => [
        link(["zone", key, it.value], it.value),
        String(it.nodes),
        String(it.pods),
        ...VARIANTS.map(([variant]) => outcome(it[variant])),
      ]),
    ),
  ]);
}

export async function zone([key, value]) {
  return page(`Lose ${value}`, await read(path(["lose"], { key, value })), (json) =>
    json.domains.flatMap((it) => [
      h("h1", null, "What if ", h("span", { class: "name" }, value), " is lost?"),
      h("p", null, `${counted(it.nodes, "node")} with ${counted(it.pods, "pod")}. Nothing is changed in the cluster.`),
      answer(value, it.tainted),
      explained(),
      summary(it),
      workloads(it),
      h("p", null, link(["zones", key], "Compare all zones")),
    ]),
  );
}

function page(title, { json, at }, content) {
  return { title, at, stamp: JSON.stringify(json), content: () => content(json) };
}

function answer(value, of) {
  if (of === null) return null;
  const waits = of.waiting + of.notEnded + of.notReached;
  return h("p", { class: "verdict" },
    badge(waits + of.notRecreated > 0 ? "bad" : "good", `If ${value} becomes unreachable`),
    `: of ${counted(of.lost, "pod")}, ${of.placed} would be placed elsewhere, ${waits} would wait, and ${of.notRecreated} would be lost for good.`,
  );
}

function explained() {
  return h("dl", null,
    VARIANTS.map(([, name, text]) => [h("dt", null, name), h("dd", null, text)]),
  );
}

function outcome(of) {
  if (of === null) return badge("plain", "not computed");
  const more = of.notEnded > 0 ? ` and ${of.notEnded} Terminating` : "";
  if (of.notReached > 0) return badge("plain", `${of.waiting}${more}, and ${of.notReached} not computed`);
  return badge(of.waiting + of.notEnded > 0 ? "bad" : "good", `${of.waiting}${more}`);
}

function summary(it) {
  const rows = VARIANTS.map(([variant, name]) => [
    name,
    ...(it[variant] === null
      ? ["–", "–", "–", "–"]
      : [String(it[variant].lost), String(it[variant].placed), outcome(it[variant]), forGood(it[variant].notRecreated)]),
  ]);
  return section(
    "All pods",
    table("Pods of the zone in each case", ["If", "Pods lost#", "Placed elsewhere#", "Waiting", "Lost for good: no controller"], rows),
  );
}

function forGood(number) {
  return badge(number > 0 ? "bad" : "good", String(number));
}

function workloads(it) {
  const rows = it.workloads.map((of) => [
    of.kind === "Pod"
      ? link(["pod", of.namespace, of.name], `${of.namespace}/${of.name}`)
      : link(["workload", of.namespace, of.kind, of.name], `${of.kind} ${of.namespace}/${of.name}`),
    String(of.running),
    ...VARIANTS.map(([variant]) =>
      of[variant] === null
        ? "–"
        : h("div", null,
            `${of[variant].lost} lost, ${of[variant].placed} placed elsewhere, `,
            outcome(of[variant]),
            " wait",
            of[variant].notRecreated > 0 && [", ", forGood(of[variant].notRecreated), " lost for good"],
            change(of[variant]),
          ),
    ),
  ]);
  return section(
    "Each workload",
    table("Workloads with pods in the zone", ["Workload", "Running#", ...VARIANTS.map(([, name]) => `If ${name}`)], rows),
  );
}

function change(of) {
  if (of.waiting === 0)
    return of.notEnded > 0 && h("p", { class: "hint" }, "No new pod is made until the node is deleted or gets the out-of-service taint.");
  const why = of.reasons.map((it) => `${it.plugin}: ${it.reasons.join(", ")}`).join("; ");
  const field = of.change?.field.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);
  return [
    h("p", { class: "hint" }, why),
    of.change && h("p", null, "With ", h("code", null, field, `: ${of.change.value}`), `, ${of.change.waiting} would wait.`),
  ];
}
