// The page of a workload: its pods in each domain, where the next one goes, and what a scale-down removes.

import { isReport, path, read } from "./api.js";
import { badge, bar, counted, details, h, link, section, since, some, table } from "./dom.js";
import { mapOf } from "./map.js";
import { NODES } from "./start.js";

export async function workload([namespace, kind, name]) {
  const [of, nodes] = await Promise.all([read(path(["workloads", namespace, kind, name])), read(NODES)]);
  const { json } = of;
  const waiting = json.pods.filter((it) => !it.node).map((it) => ({ namespace, name: it.name }));
  return {
    title: `${kind} ${namespace}/${name}`,
    at: of.at,
    stamp: JSON.stringify(json) + nodes.etag,
    content: () => [
      h("h1", null, `${kind} `, h("span", { class: "name" }, `${namespace}/${name}`)),
      h("p", null,
        `${counted(json.podCount, "pod")}, ${waiting.length} without a node`,
        waiting.slice(0, 5).map((it, at) => [at > 0 ? ", " : ": ", link(["pod", namespace, it.name], it.name)]),
        waiting.length > 5 ? ", …" : ".",
      ),
      json.skews.length === 0
        ? section("Spread", h("p", null, "No profile of Homeport judges a spread constraint of it."))
        : [...json.skews].sort((one, other) => isHard(other) - isHard(one)).map(constraint),
      mapOf(nodes.json, waiting, json.nodes),
      removal(json),
      !isReport && explain(namespace, kind, name),
    ],
  };
}

function isHard(it) {
  return it.whenUnsatisfiable === "DoNotSchedule";
}

function constraint(it) {
  const most = Math.max(1, ...it.domains.map((domain) => domain.pods));
  const hard = isHard(it);
  const hasNodes = it.domains.some((domain) => domain.nodes !== 1);
  const next = it.domains.filter((domain) => domain.takes).map((domain) => domain.name);
  const rows = it.domains.map((domain) => [
    domain.name,
    ...(hasNodes ? [String(domain.nodes)] : []),
    h("span", { class: "counted" }, bar(domain.pods, most, domain.takes || !hard ? "" : "bad"), String(domain.pods)),
    domain.takes
      ? badge(hard ? "good" : "plain", hard ? "allowed" : "preferred")
      : badge(hard ? "bad" : "plain", hard ? "too many" : "not preferred"),
  ]);
  return section(
    `Spread over ${it.topologyKey}: ${hard ? "must hold" : "a wish, keeps no pod waiting"}`,
    h("p", null,
      badge(it.above ? (hard ? "bad" : "warn") : "good", `skew ${it.skew}, allowed ${it.maxSkew}`),
      ` No domain ${hard ? "can" : "should"} get more than ${it.maxSkew} above the fewest pods of any domain, now ${it.minimum}. `,
      next.length === 0
        ? "No domain takes the next pod."
        : `By this rule alone, the next pod ${hard ? "can go to" : "prefers"} ${some(next)}.`,
    ),
    table(
      `Pods by ${it.topologyKey} (${it.whenUnsatisfiable})`,
      ["Domain", ...(hasNodes ? ["Nodes#"] : []), "Pods", "By this rule"],
      rows,
    ),
    it.domainCount > it.domains.length && h("p", null, `${it.domainCount - it.domains.length} more domains are not shown.`),
  );
}

function removal(json) {
  const rows = () =>
    table(
      "Pods, in the order of a scale-down",
      ["Order#", "Pod", "Node", "Age"],
      json.pods.map((it, at) => [
        String(at + 1),
        link(["pod", json.namespace, it.name], it.name),
        it.node ? link(["node", it.node], it.node) : "none",
        since(it.created),
      ]),
    );
  return section(
    "What a scale-down removes first",
    h("p", null, json.pods[0] ? `First ${json.pods[0].name}, as far as Homeport knows.` : "It has no pods."),
    details("removal", "All pods, in order", rows),
  );
}

function explain(namespace, kind, name) {
  const result = h("div", { "aria-live": "polite" });
  const ask = async () => {
    result.replaceChildren("Judging…");
    try {
      const { json } = await read(path(["explain", namespace], { kind, name }));
      const rows = json.items.map((it) => [
        h("div", null,
          it.pods.map((pod, at) => [at > 0 && ", ", link(["pod", namespace, pod], pod)]),
        ),
        it.explanation.summary,
      ]);
      result.replaceChildren(table("Equal pods together", ["Pods", "Verdict"], rows));
    } catch (error) {
      result.replaceChildren(error.message);
    }
  };
  return section("Explain its pods", h("button", { onclick: ask }, "Judge them now"), result);
}
