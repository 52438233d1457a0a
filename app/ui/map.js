// The map: zones, and in each zone its nodes as cells that are filled by requested CPU.

import { counted, details, h, link, route, s, section, table } from "./dom.js";

const CELL = 18;
const GAP = 3;
const MOST_COLUMNS = 40;
export const STATES = { ready: "ready", cordoned: "cordoned", notReady: "not ready", tainted: "tainted" };
const MARKS = { ready: "", cordoned: "M2 2 16 16", notReady: "M2 2 16 16M16 2 2 16", tainted: "M2 16 16 2" };

/** Return the map. `lit`: number of pods of the chosen workload by node; `waiting`: pods without a node. */
export function mapOf(nodes, waiting, lit = null) {
  const zones = nodes.zones.map((it) => zoneOf(nodes.zoneKey, it, lit));
  const group =
    waiting.length > 0 &&
    h("div", { class: "zone" },
      h("h3", null, "No node"),
      h("p", null, counted(waiting.length, "pod"), " without a node"),
      h("ul", { class: "waiting" }, waiting.map((it) => h("li", null, link(["pod", it.namespace, it.name], `${it.namespace}/${it.name}`)))),
    );
  return section(
    lit ? "Its pods on the nodes" : "Nodes",
    legend(lit),
    h("div", { class: "zones" }, group, zones),
    details("nodes", "The same as a table", () => nodeTable(nodes, lit)),
  );
}

function legend(lit) {
  const mark = (state) =>
    h("span", null,
      s("svg", { class: "cell legend", viewBox: "0 0 18 18", "aria-hidden": "true" },
        s("rect", { class: "node", width: 18, height: 18 }),
        s("path", { class: "mark", d: MARKS[state] }),
      ),
      ` ${STATES[state]}`,
    );
  return h("p", { class: "hint" },
    "Each square is a node; it is filled by the CPU that its pods request. ",
    lit && "A dot marks nodes with pods of this workload. ",
    ["cordoned", "notReady", "tainted"].map((it) => [mark(it), " "]),
  );
}

function zoneOf(key, zone, lit) {
  const name = zone.name || "no zone";
  const picture = cells(zone, lit);
  const lose = zone.name && link(["zone", key, zone.name], `What if ${name} is lost?`);
  const pods = zone.nodes.reduce((sum, it) => sum + it[3], 0);
  return h("div", { class: "zone" },
    h("h3", null, name),
    h("p", null, `${counted(zone.nodes.length, "node")}, ${counted(pods, "pod")}`),
    picture,
    lose && h("p", null, lose),
  );
}

function cells(zone, lit) {
  const columns = Math.min(MOST_COLUMNS, Math.max(4, Math.ceil(Math.sqrt(1.6 * zone.nodes.length))));
  const rows = Math.ceil(zone.nodes.length / columns);
  const step = CELL + GAP;
  const width = columns * step;
  const drawn = zone.nodes.map((node, at) => cell(node, (at % columns) * step, Math.floor(at / columns) * step, lit));
  const label = `Nodes of ${zone.name || "no zone"}`;
  const size = { viewBox: `-1 -1 ${width} ${rows * step}`, width, height: rows * step };
  return s("svg", { class: "cells", ...size, role: "group", "aria-label": label, onpointerover: nameCell }, drawn);
}

/** Show the text of a cell under the pointer. It is added here, because 5,000 texts take long to add. */
function nameCell({ target }) {
  const of = target.closest("a");
  if (of !== null && of.querySelector("title") === null) of.prepend(s("title", null, of.getAttribute("aria-label")));
}

function cell([name, cpu, , pods, state], x, y, lit) {
  const height = cpu === null ? 0 : (CELL * Math.min(100, cpu)) / 100;
  const here = lit?.[name] ?? 0;
  const text = [name, cpu === null ? "CPU unknown" : `${cpu} % of CPU requested`, counted(pods, "pod"), STATES[state] ?? state];
  if (lit) text.push(`${here} of this workload`);
  const made = s("a",
    { href: route("node", name), "aria-label": text.join(", "), transform: `translate(${x} ${y})`, class: "cell" },
    s("rect", { class: "node", width: CELL, height: CELL }),
    height > 0 && s("rect", { class: cpu > 100 ? "used over" : "used", y: CELL - height, width: CELL, height }),
  );
  if (MARKS[state]) made.append(s("path", { class: "mark", d: MARKS[state] }));
  if (here > 0) made.append(s("circle", { class: "lit", cx: CELL / 2, cy: CELL / 2, r: 5 }));
  return made;
}

function nodeTable(nodes, lit) {
  const percent = (it) => (it === null ? "unknown" : `${it} %`);
  const rows = nodes.zones.flatMap((zone) =>
    zone.nodes.map(([name, cpu, memory, pods, state]) => [
      ...[zone.name, link(["node", name], name), STATES[state] ?? state, percent(cpu), percent(memory), String(pods)],
      ...(lit ? [String(lit[name] ?? 0)] : []),
    ]),
  );
  return table("Nodes", ["Zone", "Node", "State", "CPU#", "Memory#", "Pods#", ...(lit ? ["Of this workload#"] : [])], rows);
}
