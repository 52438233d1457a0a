// The profile that judges, and the state of the service.

import { read } from "./api.js";
import { badge, duration, h, section, table } from "./dom.js";

export const STATUS = "status";

export async function profile() {
  const { json, at } = await read(STATUS);
  const pointRow = ([point, names]) => [point, names.join(", ")];
  return {
    title: "Profile",
    at,
    stamp: JSON.stringify(json.profiles),
    content: () => [
      h("h1", null, "Profile"),
      h("p", null, "Plugins of Homeport at each extension point, in their order. kube-scheduler runs its own plugins besides."),
      json.profiles.map((it) =>
        section(
          `schedulerName ${it.scheduler_name === "*" ? "* (any)" : it.scheduler_name}`,
          h("p", null, `Preset ${it.preset}.${it.bind_recheck.length > 0 ? ` Checked again at bind: ${it.bind_recheck.join(", ")}.` : ""}`),
          table("Plugins by extension point", ["Extension point", "Plugins"], Object.entries(it.points).map(pointRow)),
        ),
      ),
    ],
  };
}

export async function status() {
  const { json, at } = await read(STATUS);
  const feedRow = ([kind, it]) => [kind, feedState(it.state), String(it.objects), duration(it.age_seconds), it.left_out.join(", ")];
  const feeds = Object.entries(json.feeds).map(feedRow);
  return {
    title: "Status",
    at,
    stamp: JSON.stringify(json),
    content: () => [
      h("h1", null, `Homeport ${json.version}`),
      h("p", null, json.problem ? badge("bad", json.problem) : badge("good", "decides")),
      json.leader &&
        section("Leader", h("p", null, json.leader.here ? "This replica leads." : `${json.leader.identity || "No replica"} leads.`)),
      json.permissions?.missing.length > 0 &&
        table("Missing permissions", ["Right", "Needed for"], json.permissions.missing.map((it) => [it.right, it.needed_for])),
      section("What it reads", table("Kinds of objects", ["Kind", "State", "Objects#", "Last message", "Unreadable"], feeds)),
    ],
  };
}

/** Return the age of the snapshot, and what is wrong. */
export function healthOf(json) {
  const feeds = Object.values(json.feeds);
  const ages = feeds.filter((it) => it.state === "watching").map((it) => it.age_seconds);
  return { age: Math.max(0, ...ages), problem: json.problem, isSaved: feeds.some((it) => it.state === "saved") };
}

function feedState(state) {
  return badge({ forbidden: "bad", listing: "warn", not_served: "plain" }[state] ?? "good", state.replaceAll("_", " "));
}
