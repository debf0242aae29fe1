// The page: a top bar, the messages of one place or the home tab, a thread, and live updates.

import { renderBlocks } from "./blocks.js";
import { composer } from "./composer.js";
import { h, icon, ICONS, toast } from "./dom.js";
import { drawDrawer } from "./drawer.js";
import { drawMessages } from "./messages.js";
import { drawModals } from "./modal.js";
import { avatar } from "./people.js";
import { drawSidebar } from "./sidebar.js";
import { act, channelOf, isReply, look, markSeen, myself, now, readAddress, refresh, store, subscribe, unread } from "./store.js";
import { clockTime, fullTime } from "./time.js";

const TRAVEL = [["+10 min", 600], ["+1 h", 3600], ["+12 h", 43200], ["+1 day", 86400]];

// ── the top bar ──────────────────────────────────────────────────────────────────────────────────

const title = h("div", { class: "title" });
const tabs = h("div", { class: "tabs", role: "tablist", hidden: true });
const clock = h("time", { class: "clock" });
const jumps = TRAVEL.map(([words, seconds]) => h("button", { type: "button", class: "btn tiny", title: `Move the workspace's clock ${words}; what comes due on the way happens then`, onclick: () => jump(seconds) }, words));
const journey = h("progress", { class: "journey", max: 1, value: 0, "aria-label": "Time travels", hidden: true });
const travel = h("div", { class: "travel", role: "group", "aria-label": "Time travel" }, icon(ICONS.clock), clock, journey, jumps);
const raw = h("button", { type: "button", class: "btn tiny", "aria-pressed": "false", onclick: () => look({ drawer: !store.drawer, thread: null }) }, icon(ICONS.code), "Raw JSON");
const menu = h("button", { type: "button", class: "icon-btn menu-btn", "aria-label": "Channels and people", onclick: () => look({ menu: !store.menu }) }, icon(ICONS.menu));
const bar = h("header", { class: "topbar" }, menu, title, h("div", { class: "topbar-right" }, travel, raw));

let travelling = null;

/** How far the clock has come; the page is drawn again after each of its steps. */
function drawJourney() {
  journey.hidden = !travelling;
  if (travelling) journey.value = Math.min(1, (now() - travelling.from) / travelling.seconds);
}

/** The clock goes from one thing that is due to the next, so half a day takes a few seconds. */
async function jump(seconds) {
  for (const button of jumps) button.disabled = true;
  travelling = { from: now(), seconds };
  drawJourney();
  const moved = await act("travel", { seconds });
  travelling = null;
  drawJourney();
  for (const button of jumps) button.disabled = false;
  if (moved) toast(`It is now ${fullTime(moved.now)} in this workspace.`);
}

function drawBar(place) {
  const members = place.members?.length ?? 0;
  const isDm = Boolean(place.dm_user);
  title.replaceChildren(
    isDm ? avatar(store.state.app.user_id, "small") : icon(place.is_private ? ICONS.lock : ICONS.hash),
    h("h1", {}, isDm ? store.state.app.name : place.name),
    h("span", { class: "topic" }, isDm ? "Your messages with the app" : `${members} members${place.topic ? ` · ${place.topic}` : ""}`));
  clock.textContent = `${clockTime(now())}${store.state.ahead_s ? " (travelled)" : ""}`;
  clock.title = fullTime(now());
  travel.hidden = !store.state.can_travel;
  drawJourney();
  raw.setAttribute("aria-pressed", String(store.drawer));
  tabs.hidden = !isDm;
  tabs.replaceChildren(...[["home", "Home"], ["messages", "Messages"]].map(([name, words]) =>
    h("button", { type: "button", role: "tab", "aria-selected": String(store.tab === name), onclick: () => { look({ tab: name }); if (name === "home") act("home", {}); } }, words)));
  document.title = `${isDm ? store.state.app.name : `#${place.name}`} | ${myself().name} | practice`;
}

// ── the messages of one place, or the home tab ───────────────────────────────────────────────────

const list = h("div", { class: "messages", role: "log", "aria-label": "Messages" });
const empty = h("div", { class: "empty", hidden: true });
const scroller = h("div", { class: "scroller", tabindex: "0", "aria-label": "Conversation" }, empty, list);
const home = h("div", { class: "home", hidden: true });
const write = composer(() => {
  const place = channelOf(store.channel);
  return { channel: store.channel, name: place?.dm_user ? store.state.app.name : `#${place?.name}` };
});
const pane = h("div", { class: "pane" }, scroller, home, write.node);
let drawnPlace = null;
let drawnHome = null;

function drawHome(place) {
  const showing = Boolean(place.dm_user) && store.tab === "home";
  home.hidden = !showing;
  scroller.hidden = write.node.hidden = showing;
  if (!showing) return;
  const view = store.state.homes[myself().id];
  const key = view ? `${store.me}/${view.id}/${view.version}` : `${store.me}/none`;
  if (drawnHome === key) return;
  drawnHome = key;
  const host = view && {
    fields: [],
    state: view.state,
    act: async (block, element, value) => { await act("view_click", { view_id: view.id, what: element.action_id, value }); await refresh(); },
  };
  home.replaceChildren(h("div", { class: "home-page" }, view ? renderBlocks(view.body.blocks, host) : h("p", { class: "quiet" }, "The app has not published a home tab for you yet.")));
}

function drawEmpty(place, messages) {
  empty.hidden = messages.length > 0;
  const example = store.state.commands[0];
  const hint = example ? [" Type ", h("code", {}, example.name), " below to talk to the app."] : [];
  empty.replaceChildren(h("h3", {}, place.dm_user ? `This is where ${store.state.app.name} writes to you` : `This is the very beginning of #${place.name}`), h("p", {}, place.topic ? `${place.topic}.` : "Nothing here yet.", hint));
}

function drawMain() {
  const place = channelOf(store.channel) ?? store.state.channels[0];
  if (!place) return;
  if (place.id !== store.channel) store.channel = place.id;
  const messages = store.state.messages.filter((m) => m.channel === place.id && (!isReply(m) || m.ephemeral_to));
  const where = `${store.me}/${place.id}`;
  const atEnd = drawnPlace !== where || scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 120;
  drawBar(place);
  drawEmpty(place, messages);
  drawMessages(list, messages);
  drawHome(place);
  write.relabel();
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  drawnPlace = where;
  markSeen(place.id);
}

// ── the thread ───────────────────────────────────────────────────────────────────────────────────

const replyList = h("div", { class: "messages", role: "log", "aria-label": "Replies" });
const reply = composer(() => ({ channel: store.thread?.channel, thread_ts: store.thread?.ts, name: "thread" }));
const threadScroller = h("div", { class: "scroller" }, replyList);
let drawnThread = null;

function drawThread() {
  const side = document.getElementById("thread");
  side.hidden = !store.thread;
  if (!store.thread) {
    drawnThread = null;
    return;
  }
  if (!side.firstChild) {
    side.append(h("header", { class: "side-head" }, h("h2", {}, "Thread"), h("button", { type: "button", class: "icon-btn", "aria-label": "Close thread", onclick: () => look({ thread: null }) }, icon(ICONS.close))), threadScroller, reply.node);
  }
  const { channel, ts } = store.thread;
  drawMessages(replyList, store.state.messages.filter((m) => m.channel === channel && (m.ts === ts || m.thread_ts === ts)), { inThread: true });
  reply.relabel();
  if (drawnThread !== ts) threadScroller.scrollTop = threadScroller.scrollHeight;
  drawnThread = ts;
}

// ── start ────────────────────────────────────────────────────────────────────────────────────────

function listen() {
  const stream = new EventSource("practice/api/events");
  let lost = false;
  stream.onmessage = () => {
    lost = false;
    refresh();
  };
  stream.onerror = () => {
    if (!lost) toast("The practice workspace has stopped. This page goes on when it is back.", "bad");
    lost = true;
  };
}

function start() {
  readAddress();
  document.getElementById("main").append(bar, tabs, pane);
  for (const draw of [drawMain, drawSidebar, drawThread, drawDrawer, drawModals]) subscribe(draw);
  subscribe(() => {
    menu.classList.toggle("fresh", store.state.channels.some((c) => c.id !== store.channel && unread(c)));
    document.getElementById("app").removeAttribute("aria-busy");
  });
  pane.addEventListener("click", () => { if (store.menu) look({ menu: false }); });
  window.addEventListener("hashchange", () => { readAddress(); refresh(); });
  setInterval(() => { if (store.state) clock.textContent = `${clockTime(now())}${store.state.ahead_s ? " (travelled)" : ""}`; }, 5000);
  refresh().then(() => { if (store.tab === "home") act("home", {}); });
  listen();
}

start();
