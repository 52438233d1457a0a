// The page of a pod: the verdict, what would help, and why each node is refused.

import { dataDate, path, read } from "./api.js";
import { badge, bar, counted, details, h, link, route, section, table, tableOr } from "./dom.js";

const VERDICTS = {
  Fits: ["warn", "a node fits"],
  Bound: ["good", "bound"],
  NoNodeFits: ["bad", "no node fits"],
  Gated: ["warn", "gated"],
  HeldAtPermit: ["warn", "held at Permit"],
  Terminating: ["plain", "is being deleted"],
};
const MOST_NAMES = 200;

export async function pod([namespace, name], query) {
  const node = query.get("node");
  const { json, at } = await read(path(["explain", namespace, name], node ? { node } : {}));
  return {
    title: `${namespace}/${name}`,
    at,
    stamp: json.judgedAt,
    content: () => [
      h("h1", null, "Pod ", h("span", { class: "name" }, `${namespace}/${name}`)),
      h("p", { class: "verdict" }, badge(...(VERDICTS[json.verdict] ?? ["plain", json.verdict])), `: ${json.summary}`),
      json.verdict === "Fits" &&
        h("p", { class: "hint" },
          `It is not placed yet: check that ${json.schedulerName} runs. Its events say what was tried last: `,
          h("code", null, `kubectl describe pod ${name} -n ${namespace}`),
          dataDate() && ". Events of that time may be gone.",
        ),
      remedies(json),
      json.home && homeOf(json),
      json.node && oneNode(json.node),
      whyNot(json),
      spread(json),
      resources(json),
      others(json),
      askNode(namespace, name, node),
    ],
  };
}

function remedies(json) {
  if (json.verdict === "Bound") return null;
  const kind = json.home?.owner.kind;
  const more = json.feasible.length > 0 ? "more node" : "node";
  const list = json.remedies.map((it, at) =>
    h("li", null, h("b", null, it.change), `: then ${counted(it.opens, more)} would fit `,
      details(`remedy-${at}`, "which", () =>
        h("div", null, nodeLinks(it.nodes), it.pods.length > 0 && h("p", null, `Pods: ${it.pods.join(", ")}`)),
      ),
      it.sort === "ReleaseHome" && [
        h("div", null, h("code", null, homesCommand("release", json.home.owner))),
        h("div", null,
          `Cost: ${kind === "VirtualMachine" ? "the VM" : `the ${kind}`} starts elsewhere and gets a new home. `,
          `Homeport does not touch volumes: data on ${json.home.node} stays there, and a volume bound to that node keeps the pod there.`,
        ),
        h("div", null, "Undo: ", h("code", null, homesCommand("move", json.home.owner, json.home.node)), "; it moves no running pod."),
      ],
    ),
  );
  const which = list.length === 1 ? "this change" : "any one of these changes";
  const opens = list.length === 1 ? counted(json.remedies[0].opens, more) : `at least one ${more}`;
  const judged = json.remedies.some((it) => it.provedBy === "partial") ? ", as far as judged here" : "";
  if (list.length > 0)
    return section(
      "What would help",
      h("p", { class: "hint" }, `With ${which} it would fit on ${opens}${judged}. Tried on a copy of the cluster.`),
      h("ul", { class: "remedies" }, list),
      uncordon(json),
    );
  if (json.impossible.length > 0)
    return section("What cannot work", h("ul", null, json.impossible.map((it) => h("li", null, it))));
  const none = "No single change that Homeport knows helps.";
  return json.feasible.length === 0 && section("What would help", h("p", null, none), uncordon(json));
}

/** Return why the uncordon of the home does not help, and what helps instead, if the answer says so. */
function uncordon({ home, homeTaints = [], groups }) {
  const refusals = home === null ? [] : refusalsAt(home.node, groups);
  const others = refusals.filter((it) => !["NodeUnschedulable", "TaintToleration", "PodTopologySpread"].includes(it.plugin));
  const taints = homeTaints.map((it) => `the taint ${it}`).join(", ");
  const why = [
    taints && `the pod does not tolerate ${taints}`,
    others.length > 0 && `${others.map((it) => it.plugin).join(", ")} also refuses the pod there`,
  ].filter(Boolean);
  const isStuck = why.length > 0 && refusals.some((it) => it.plugin === "NodeUnschedulable");
  const isSpread = refusals.some((it) => it.plugin === "PodTopologySpread");
  const isKnown = others.length === 0 && !isSpread && home?.cause === "cordoned" && !taints.includes("node.kubernetes.io/");
  const untried = "No other reason is known there; this was not tried.";
  return isStuck && [
    h("p", null, h("b", null, `uncordon ${home.node}`), ` alone does not help: ${why.join(", and ")}.`),
    isKnown && h("p", null, h("b", null, "To keep the home"), `: uncordon ${home.node}, and also tolerate or remove ${taints}. `, untried),
  ];
}

/** Return why a node refuses the pod, apart from the rule about its home. */
function refusalsAt(node, groups) {
  return groups.find((it) => it.nodes.includes(node))?.reasons.filter((it) => it.plugin !== "StickyNode") ?? [];
}

function homesCommand(verb, { kind, name, namespace, slot }, node = "") {
  return `homeport homes ${verb} ${kind.toLowerCase()}/${name}${slot && `/${slot}`}${node && ` ${node}`} -n ${namespace}`;
}

function homeOf({ home, groups }) {
  const { owner } = home;
  const until = home.until ? `, until ${home.until}` : "";
  const refusals = refusalsAt(home.node, groups).map((it) => `${it.plugin}: ${it.reasons.join(", ")}`);
  const rows = [
    ["node", home.node ? link(["node", home.node], home.node) : "none yet"],
    ["state", home.cause || home.state.replaceAll("_", " ")],
    ["policy", `${home.policy}: ${home.effect}${until}${home.policy === "hard" ? "; soft would allow other nodes" : ""}`],
    refusals.length > 0 && ["other reasons", refusals.join("; ")],
  ].filter(Boolean);
  return section(
    "Its home",
    h("p", { class: "hint" }, `The node to which ${owner.kind} ${owner.namespace}/${owner.name} returns.`),
    h("dl", null, rows.map(([term, text]) => [h("dt", null, term), h("dd", null, text)])),
  );
}

function whyNot(json) {
  const rows = json.groups.map((it, at) => [
    String(it.count),
    it.reasons.map((reason) =>
      h("div", null, h("b", null, reason.plugin), `: ${reason.reasons.join(", ")}`,
        json.judges[reason.plugin] && h("span", { class: "hint" }, ` (decided by ${json.judges[reason.plugin]})`),
      ),
    ),
    names(`group-${at}`, it.nodes),
  ]);
  const columns = ["Nodes#", "Reasons", "Which"];
  return section(
    json.feasible.length > 0 ? "Why not the other nodes" : "Why no node fits",
    tableOr("No node is refused.", "Nodes by reason; a node with several reasons fits only after all are gone", columns, rows),
    json.feasible.length > 0 && h("div", null, h("h3", null, "Nodes that fit"), names("feasible", json.feasible)),
  );
}

function names(key, nodes) {
  return nodes.length <= 8 ? nodeLinks(nodes) : details(key, counted(nodes.length, "node"), () => nodeLinks(nodes));
}

function nodeLinks(nodes) {
  const more = nodes.length - MOST_NAMES;
  return h("div", null,
    nodes.slice(0, MOST_NAMES).map((it, at) => [at > 0 && ", ", link(["node", it], it)]),
    more > 0 && `, and ${more} more`,
  );
}

function spread(json) {
  const tables = Object.entries(json.plugins).flatMap(([plugin, it]) => it.tables.map((one) => [plugin, one]));
  const drawn = tables.map(([plugin, one]) => numbers(`${plugin}: ${one.title}`, one));
  return drawn.length > 0 && section("The numbers behind it", drawn);
}

function numbers(title, { columns, rows }) {
  const at = columns.indexOf("pods");
  const allowed = columns.indexOf("allowed");
  const most = Math.max(1, ...rows.map((it) => (at < 0 ? 0 : it[at])));
  const heads = columns.map((it, column) => (typeof rows[0]?.[column] === "number" ? `${it}#` : it));
  const cells = rows.map((row) =>
    row.map((cell, column) => {
      if (column === allowed) return cell ? badge("good", "takes the pod") : badge("bad", "refuses the pod");
      return column === at ? h("span", { class: "counted" }, bar(cell, most), String(cell)) : String(cell);
    }),
  );
  return table(title, heads, cells);
}

function resources(json) {
  const rows = json.resources.map((it) => [it.name, it.requested, it.mostFree, link(["node", it.node], it.node), it.free]);
  const heads = ["Resource", "Requested#", "Most free on one node#", "That node", "Free in all#"];
  return rows.length > 0 && section("Resources", table("What it requests and what is free", heads, rows));
}

function oneNode(node) {
  const rows = node.verdicts.map((it) => [
    it.plugin,
    badge(it.code === "Success" || it.code === "Skip" ? "good" : "bad", it.code),
    it.reasons.join(", "),
    String(node.scores?.[it.plugin] ?? ""),
  ]);
  return section(
    `On node ${node.name}`,
    h("p", null, node.fits ? "Every filter accepts this node." : "At least one filter refuses this node."),
    table("Verdict of each plugin", ["Plugin", "Verdict", "Reason", "Score#"], rows),
  );
}

function others(json) {
  const said = json.scheduler;
  return [
    said &&
      section(
        "What kube-scheduler said",
        h("blockquote", null, said.message),
        said.differences.length > 0 && h("p", null, "Differences:"),
        h("ul", null, said.differences.map((it) => h("li", null, it))),
      ),
    json.notJudged.length > 0 &&
      section("Not judged", h("ul", null, json.notJudged.map((it) => h("li", null, `${it.plugin}: ${it.why}`)))),
    json.incomplete && h("p", null, badge("warn", "The time for the answer was over; there can be more remedies.")),
  ];
}

function askNode(namespace, name, node) {
  const input = h("input", { name: "node", value: node ?? "", required: true, autocomplete: "off", spellcheck: "false", size: 30 });
  const ask = (event) => {
    event.preventDefault();
    location.hash = `${route("pod", namespace, name)}?${new URLSearchParams({ node: input.value })}`;
  };
  return section(
    "Why not on one node?",
    h("form", { onsubmit: ask }, h("label", null, "Name of the node ", input), " ", h("button", null, "Judge it there")),
  );
}
