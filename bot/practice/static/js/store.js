// The newest state of the workspace, where this window is looking, and how both change.

import { toast } from "./dom.js";

const subscribers = new Set();

export const store = {
  state: null,
  me: "alice",
  channel: "C0GPU",
  tab: "messages",
  thread: null,
  drawer: false,
  menu: false,
  seen: new Map(),
};

export function subscribe(render) {
  subscribers.add(render);
}

export function redraw() {
  if (store.state) for (const render of subscribers) render();
}

/** Change where this window looks, remember it in the address, and draw. */
export function look(changes) {
  Object.assign(store, changes);
  const address = new URLSearchParams({ as: store.me, c: store.channel });
  if (store.tab === "home") address.set("tab", "home");
  history.replaceState(null, "", `#${address}`);
  redraw();
}

export function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  store.me = address.get("as") ?? store.me;
  store.channel = address.get("c") ?? store.channel;
  store.tab = address.get("tab") === "home" ? "home" : "messages";
}

/** One act of the person in this window. Returns the answer, or null after telling them what went wrong. */
export async function act(verb, body) {
  try {
    const answer = await fetch(`practice/api/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ as: store.me, ...body }),
    });
    const data = await answer.json();
    if (answer.ok) return data;
    toast(data.error ?? `The practice workspace answered ${answer.status}.`, "bad");
  } catch (error) {
    toast(`The practice workspace does not answer: ${error.message}`, "bad");
  }
  return null;
}

let fetching = null;
let again = false;

/** Fetch the state and draw; calls while one is under way end in one more fetch. */
export function refresh() {
  if (fetching) {
    again = true;
    return fetching;
  }
  fetching = (async () => {
    do {
      again = false;
      const who = store.me;
      const answer = await fetch(`practice/api/state?as=${encodeURIComponent(who)}`);
      if (answer.status === 404 && who !== "alice") {
        store.me = "alice";
        again = true;
      } else if (answer.ok && who === store.me) {
        store.state = await answer.json();
        store.state.fetchedAt = Date.now();
        redraw();
      } else {
        again = who !== store.me;
      }
    } while (again);
  })().finally(() => {
    fetching = null;
  });
  return fetching;
}

// ── questions about the state ──────────────────────────────────────────────────────────────────

export const user = (id) => store.state.users.find((u) => u.id === id || u.name === id);
export const myself = () => user(store.me);
export const channelOf = (id) => store.state.channels.find((c) => c.id === id);
export const usergroup = (id) => store.state.usergroups.find((g) => g.id === id);

/** Epoch seconds on the workspace's clock. */
export const now = () => store.state.now + (Date.now() - store.state.fetchedAt) / 1000;

export const isReply = (m) => m.thread_ts && m.thread_ts !== m.ts;

export function unread(channel) {
  const seen = store.seen.get(`${store.me}/${channel.id}`) ?? "0";
  const mine = myself().id;
  return store.state.messages.filter((m) => m.channel === channel.id && m.user !== mine && m.ts > seen).length;
}

export function markSeen(channelId) {
  const last = store.state.messages.filter((m) => m.channel === channelId).at(-1);
  if (last) store.seen.set(`${store.me}/${channelId}`, last.ts);
}
