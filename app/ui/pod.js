// The page of a pod: the verdict, what would help, and why each node is refused.

import { path, read } from "./api.js";
import { badge, bar, counted, details, h, link, route, section, table } from "./dom.js";

const VERDICTS = {
  Fits: "warn",
  Bound: "good",
  NoNodeFits: "bad",
  Gated: "warn",
  HeldAtPermit: "warn",
  Terminating: "plain",
};
const WORDS = {
  Fits: "a node fits",
  Bound: "bound",
  NoNodeFits: "no node fits",
  Gated: "gated",
  HeldAtPermit: "held at Permit",
  Terminating: "is being deleted",
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
      h("p", { class: "verdict" }, badge(VERDICTS[json.verdict] ?? "plain", WORDS[json.verdict] ?? json.verdict), `: ${json.summary}`),
      json.verdict === "Fits" &&
        h("p", { class: "hint" }, `No rule keeps it waiting: ${json.schedulerName} can place it, and might not have tried again yet.`),
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
  const list = json.remedies.map((it, at) =>
    h("li", null,
      h("b", null, it.change),
      `: then ${counted(it.opens, "more node")} would fit `,
      details(`remedy-${at}`, "which", () =>
        h("div", null, nodeLinks(it.nodes), it.pods.length > 0 && h("p", null, `Pods: ${it.pods.join(", ")}`)),
      ),
      it.sort === "ReleaseHome" && h("div", null, h("code", null, releaseOf(json.home.owner))),
    ),
  );
  if (list.length > 0)
    return section(
      "What would help",
      h("p", { class: "hint" }, "Any one of these changes. Homeport tried each on a copy of the cluster."),
      h("ul", { class: "remedies" }, list),
    );
  if (json.impossible.length > 0)
    return section(
      "What cannot work",
      h("ul", null,
        json.impossible.map((it) => h("li", null, it)),
      ),
    );
  return json.feasible.length === 0 && section("What would help", h("p", null, "No single change that Homeport knows helps."));
}

function releaseOf({ kind, name, namespace, slot }) {
  return `homeport homes release ${kind.toLowerCase()}/${name}${slot && `/${slot}`} -n ${namespace}`;
}

function homeOf({ home, groups }) {
  const { owner } = home;
  const until = home.until ? `, until ${home.until}` : "";
  const refusals = groups.find((it) => it.nodes.includes(home.node))?.reasons.filter((it) => it.plugin !== "StickyNode") ?? [];
  return section(
    "Its home",
    h("p", null,
      `The home is the node to which ${owner.kind} ${owner.namespace}/${owner.name} returns: `,
      home.node ? link(["node", home.node], home.node) : "none yet",
      `. Its state: ${home.cause || home.state.replaceAll("_", " ")}. With the policy ${home.policy}: ${home.effect}${until}.`,
    ),
    refusals.length > 0 &&
      h("p", null, `${home.node} itself refuses the pod: `, refusals.map((it) => `${it.plugin}: ${it.reasons.join(", ")}`).join("; "), "."),
  );
}

function whyNot(json) {
  const rows = json.groups.map((it, at) => [
    String(it.count),
    it.reasons.map((reason) =>
      h("div", null,
        h("b", null, reason.plugin),
        `: ${reason.reasons.join(", ")}`,
        json.judges[reason.plugin] && h("span", { class: "hint" }, ` (decided by ${json.judges[reason.plugin]})`),
      ),
    ),
    names(`group-${at}`, it.nodes),
  ]);
  return section(
    json.feasible.length > 0 ? "Why not the other nodes" : "Why no node fits",
    rows.length === 0 ? h("p", null, "No node is refused.") : table("Nodes by reason", ["Nodes#", "Reasons", "Which"], rows),
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
  return (
    tables.length > 0 &&
    section(
      "The numbers behind it",
      tables.map(([plugin, one]) => numbers(`${plugin}: ${one.title}`, one)),
    )
  );
}

function numbers(title, { columns, rows }) {
  const at = columns.indexOf("pods");
  const allowed = columns.indexOf("allowed");
  const most = Math.max(1, ...rows.map((it) => (at < 0 ? 0 : it[at])));
  const heads = columns.map((it, column) => (typeof rows[0]?.[column] === "number" ? `${it}#` : it));
  const cells = rows.map((row) =>
    row.map((cell, column) => {
      if (column === allowed) return cell ? badge("good", "takes the pod") : badge("bad", "too many");
      return column === at
        ? h("span", { class: "counted" }, bar(cell, most, allowed >= 0 && !row[allowed] ? "bad" : ""), String(cell))
        : String(cell);
    }),
  );
  return table(title, heads, cells);
}

function resources(json) {
  const rows = json.resources.map((it) => [it.name, it.requested, it.mostFree, link(["node", it.node], it.node), it.free]);
  return (
    rows.length > 0 &&
    section(
      "Resources",
      table("What it requests and what is free", ["Resource", "Requested#", "Most free on one node#", "That node", "Free in all#"], rows),
    )
  );
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
        h("ul", null,
          said.differences.map((it) => h("li", null, it)),
        ),
      ),
    json.notJudged.length > 0 &&
      section(
        "Not judged",
        h("ul", null,
          json.notJudged.map((it) => h("li", null, `${it.plugin}: ${it.why}`)),
        ),
      ),
    json.incomplete && h("p", null, badge("warn", "The time for the answer was over; there can be more remedies.")),
  ];
}

function askNode(namespace, name, node) {
  const input = h("input", {
    name: "node",
    value: node ?? "",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    size: 30,
  });
  const ask = (event) => {
    event.preventDefault();
    location.hash = `${route("pod", namespace, name)}?${new URLSearchParams({ node: input.value })}`;
  };
  return section(
    "Why not on one node?",
    h("form", { onsubmit: ask }, h("label", null, "Name of the node ", input), " ", h("button", null, "Judge it there")),
  );
}
