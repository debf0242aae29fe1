// Faces: initials for people, a chip for the app.

import { h, icon, ICONS } from "./dom.js";
import { store, user } from "./store.js";

const COLOURS = ["#b3446c", "#2b7a9b", "#7a5195", "#c06c2b", "#3d7f5f", "#8a6d3b", "#5a67a8"];

export function avatar(id, size = "") {
  const person = user(id);
  if (id === store.state.app.user_id) {
    return h("span", { class: `avatar app-face ${size}`, "aria-hidden": "true" }, h("img", { src: "icon.svg", alt: "" }));
  }
  if (id === "USLACKBOT") {
    return h("span", { class: `avatar system-face ${size}`, "aria-hidden": "true" }, icon(ICONS.warn));
  }
  const name = person?.real_name ?? "?";
  const node = h("span", { class: `avatar ${size}`, "aria-hidden": "true" }, name.split(/\s+/).map((word) => word[0]).slice(0, 2).join(""));
  const people = store.state.users.filter((u) => !u.is_bot);
  node.style.background = COLOURS[Math.max(0, people.findIndex((u) => u.id === id)) % COLOURS.length];
  return node;
}

export const nameOf = (id) => (id === "USLACKBOT" ? "Slackbot" : (user(id)?.real_name ?? id));
