// The left column: where one can be, and who one is.

import { h, icon, ICONS } from "./dom.js";
import { avatar } from "./people.js";
import { act, look, myself, refresh, store, unread } from "./store.js";

function go(changes) {
  look({ thread: null, menu: false, ...changes });
  document.querySelector(".compose")?.focus();
}

function row(channel, label, mark, tab) {
  const count = channel.id === store.channel ? 0 : unread(channel);
  const here = channel.id === store.channel;
  return h("button", { type: "button", class: `place${here ? " here" : ""}${count ? " fresh" : ""}`, "aria-current": here ? "page" : null, onclick: () => go({ channel: channel.id, tab: tab ?? "messages" }) },
    mark, h("span", { class: "label" }, label), count ? h("span", { class: "count", "aria-label": `${count} new` }, String(count)) : null);
}

async function become(name) {
  const person = store.state.users.find((u) => u.name === name);
  const place = store.state.channels.find((c) => c.id === store.channel);
  const wasDm = place?.dm_user;
  look({ me: name, thread: null, menu: false });
  await refresh();
  const dm = store.state.channels.find((c) => c.dm_user === person.id);
  if (wasDm && dm) look({ channel: dm.id });
  else if (!store.state.channels.some((c) => c.id === store.channel)) look({ channel: store.state.channels.find((c) => !c.dm_user)?.id ?? dm?.id });
  if (store.tab === "home") act("home", {});
}

function persona(person) {
  const on = person.name === store.me;
  return h("button", { type: "button", class: `persona${on ? " on" : ""}`, role: "radio", "aria-checked": on ? "true" : "false", title: `Act as ${person.real_name}`, dataset: { person: person.name }, onclick: () => become(person.name) },
    avatar(person.id, "small"), h("span", { class: "who" }, h("span", { class: "who-name" }, person.real_name), h("span", { class: "who-role" }, person.role)));
}

export function drawSidebar() {
  const { channels, users, app } = store.state;
  const places = channels.filter((c) => !c.dm_user);
  const dm = channels.find((c) => c.dm_user === myself().id);
  const side = document.getElementById("sidebar");
  side.classList.toggle("open", store.menu);
  const focused = side.contains(document.activeElement) ? document.activeElement.dataset.person ?? document.activeElement.textContent : null;
  side.replaceChildren(
    h("div", { class: "workspace" }, h("span", { class: "workspace-name" }, "Practice workspace"), h("span", { class: "workspace-sub" }, `${app.name} connected by ${app.transport}`)),
    h("div", { class: "group" }, h("h2", {}, "Channels"), places.map((c) => row(c, c.name, icon(c.is_private ? ICONS.lock : ICONS.hash)))),
    dm ? h("div", { class: "group" }, h("h2", {}, "Apps"), row(dm, app.name, avatar(app.user_id, "tiny"))) : null,
    h("div", { class: "spring" }),
    h("div", { class: "group personas", role: "radiogroup", "aria-label": "Act as" }, h("h2", {}, "You are acting as"), users.filter((u) => !u.is_bot && !u.deleted).map(persona)));
  if (focused) [...side.querySelectorAll("button")].find((b) => (b.dataset.person ?? b.textContent) === focused)?.focus();
}
