// The page of a workload: its pods in each domain, where the next one goes, and what a scale-down removes.

import { isReport, path, read } from "./api.js";
import { badge, bar, counted, details, h, link, onClick, section, since, some, table } from "./dom.js";
import { mapOf, STATES } from "./map.js";
import { NODES } from "./start.js";

const HOST = "kubernetes.io/hostname";

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
        : [...json.skews].sort((one, other) => isHard(other) - isHard(one)).map((it) => constraint(it, nodes.json, waiting.length)),
      mapOf(nodes.json, waiting, json.nodes),
      removal(json),
      !isReport && explain(namespace, kind, name),
    ],
  };
}

function isHard(it) {
  return it.whenUnsatisfiable === "DoNotSchedule";
}

function constraint(it, nodes, waiting) {
  const pods = it.domains.map((domain) => domain.pods);
  const [most, least] = [Math.max(1, ...pods), Math.min(...pods)];
  const hard = isHard(it);
  const hasNodes = it.domains.some((domain) => domain.nodes !== 1);
  const unit = { [nodes.zoneKey]: "zone", [HOST]: "node" }[it.topologyKey] ?? "domain";
  const domains = it.domains.map((domain) => ({ ...domain, closed: closedBy(nodes, it.topologyKey, domain.name) }));
  const next = domains.filter((domain) => domain.takes && !domain.closed).map((domain) => domain.name);
  const not = hard && waiting > 0 ? `, so it is not this rule alone that keeps ${counted(waiting, "pod")} waiting` : "";
  const rows = domains.map((domain) => [
    domain.name,
    ...(hasNodes ? [String(domain.nodes)] : []),
    h("span", { class: "counted" }, bar(domain.pods, most, hard && isOver(it, domain) ? "bad" : ""), String(domain.pods)),
    badge(...judgedBy(it, domain)),
  ]);
  return section(
    `Spread over ${it.topologyKey}: ${hard ? (it.above ? "broken now" : "kept") : "a wish, keeps no pod waiting"}`,
    h("p", null,
      badge(it.above ? (hard ? "bad" : "warn") : "good", `skew ${it.skew}, allowed ${it.maxSkew}`),
      ` ${hard ? "The rule" : "The wish"}: the fullest ${unit} has at most ${counted(it.maxSkew, "pod")} more than the emptiest. `,
      `Now the fullest has ${it.minimum + it.skew}, and the emptiest ${least === it.minimum ? "" : "counts as "}${it.minimum}. `,
      hard && it.above && "DoNotSchedule only stops new pods; running pods stay where they are.",
    ),
    h("p", null,
      next.length > 0
        ? `By this ${hard ? "rule" : "wish"} alone, the next pod ${hard ? "can go to" : "prefers"} ${some(next)}${not}.`
        : domains.some((domain) => domain.takes)
          ? `Each ${unit} that this rule leaves to the next pod is cordoned, not ready or tainted.`
          : `No ${unit} takes the next pod.`,
    ),
    table(`Pods by ${it.topologyKey} (${it.whenUnsatisfiable})`, ["Domain", ...(hasNodes ? ["Nodes#"] : []), "Pods", "One more pod"], rows),
    it.domainCount > it.domains.length && h("p", null, `${it.domainCount - it.domains.length} more domains are not shown.`),
  );
}

function isOver(it, domain) {
  return domain.pods - it.minimum > it.maxSkew;
}

/** Return kind and word of a domain's badge. */
function judgedBy(it, domain) {
  const hard = isHard(it);
  if (domain.takes && domain.closed) return ["plain", `${hard ? "allowed" : "fewest pods"}, but ${domain.closed}`];
  if (domain.takes) return hard ? ["good", "allowed"] : ["plain", "preferred"];
  if (isOver(it, domain)) return hard ? ["bad", "not allowed: over the limit"] : ["warn", "over the limit"];
  if (!hard) return ["plain", "not preferred"];
  return ["plain", domain.pods - it.minimum === it.maxSkew ? `not allowed: skew would be ${it.maxSkew + 1}` : "not allowed"];
}

/** Return why a domain takes no usual pods, if the map of the nodes shows it: no node of it is ready. */
function closedBy(nodes, key, name) {
  const zones = key === nodes.zoneKey ? nodes.zones.filter((it) => it.name === name) : key === HOST ? nodes.zones : [];
  const states = zones.flatMap((zone) => zone.nodes.filter((it) => key !== HOST || it[0] === name)).map((it) => it[4]);
  return states.includes("ready") ? "" : [...new Set(states)].map((it) => STATES[it] ?? it).join(" or ");
}

function removal(json) {
  const nodeOf = (it) => (it.node ? link(["node", it.node], it.node) : "none");
  const row = (it, at) => [String(at + 1), link(["pod", json.namespace, it.name], it.name), nodeOf(it), since(it.created)];
  const rows = () => table("Pods, in the order of a scale-down", ["Order#", "Pod", "Node", "Age"], json.pods.map(row));
  return section(
    "What a scale-down removes first",
    h("p", null, json.pods[0] ? `First ${json.pods[0].name}, as far as Homeport knows.` : "It has no pods."),
    details("removal", "All pods, in order", rows),
  );
}

function explain(namespace, kind, name) {
  const answer = async () => {
    const { json } = await read(path(["explain", namespace], { kind, name }));
    const rows = json.items.map((it) => [
      h("div", null, it.pods.map((pod, at) => [at > 0 && ", ", link(["pod", namespace, pod], pod)])),
      it.explanation.summary,
    ]);
    return [table("Equal pods together", ["Pods", "Verdict"], rows)];
  };
  return section("Explain its pods", onClick("Judge them now", answer));
}
