// The raw JSON drawer: what went over the wire, and single messages.

import { h, icon, ICONS, keyed } from "./dom.js";
import { look, store } from "./store.js";

let lines = [];
let fetching = false;
let single = null;

const pretty = (value) => JSON.stringify(value, null, 2);
const ARROWS = { api: "app → Slack", delivery: "Slack → app", response_url: "app → response_url" };

export function showJson(message) {
  single = message;
  look({ drawer: true, thread: null });
}

async function fetchLines() {
  if (fetching) return;
  fetching = true;
  try {
    const answer = await fetch(`practice/api/log?after=${lines.at(-1)?.number ?? 0}`);
    if (answer.ok) {
      const more = (await answer.json()).log;
      lines = [...lines, ...more].slice(-200);
      if (more.length) drawLines();
    }
  } finally {
    fetching = false;
  }
}

function line(record) {
  const failed = (record.status !== null && record.status >= 400) || record.response.ok === false || record.response.error;
  const label = failed ? String(record.response.error ?? record.status) : record.kind === "delivery" ? `${Math.round(record.response.took_s * 1000)} ms` : "ok";
  return h("details", { class: "wire" },
    h("summary", {}, h("span", { class: "wire-name" }, record.name), h("span", { class: "wire-way" }, ARROWS[record.kind]), h("span", { class: failed ? "wire-end bad" : "wire-end" }, label)),
    h("h4", {}, "Request"), h("pre", {}, pretty(record.request)), h("h4", {}, "Response"), h("pre", {}, pretty(record.response)));
}

function drawLines() {
  const list = document.querySelector("#drawer .wires");
  if (list) keyed(list, [...lines].reverse().map((record) => ({ key: `wire/${record.number}`, make: () => line(record) })));
}

export function drawDrawer() {
  const drawer = document.getElementById("drawer");
  drawer.hidden = !store.drawer;
  if (!store.drawer) {
    single = null;
    drawer.replaceChildren();
    return;
  }
  const key = single ? `${single.ts}/${single.version}` : "wire";
  if (drawer.dataset.showing !== key || !drawer.firstChild) {
    drawer.dataset.showing = key;
    const close = h("button", { type: "button", class: "icon-btn", "aria-label": "Close raw JSON", onclick: () => { single = null; look({ drawer: false }); } }, icon(ICONS.close));
    const all = single && h("button", { type: "button", class: "btn tiny", onclick: () => { single = null; look({}); } }, "All traffic");
    drawer.replaceChildren(
      h("header", { class: "side-head" }, h("h2", {}, single ? "Message JSON" : "Raw JSON"), all, close),
      single ? h("div", { class: "wires single" }, h("pre", {}, pretty(single))) : h("div", { class: "wires" }));
    drawLines();
  }
  if (!single) fetchLines();
}
