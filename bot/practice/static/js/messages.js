// One message: face, name, time, text or blocks, what only you see, replies.

import { renderBlocks } from "./blocks.js";
import { h, icon, ICONS, keyed } from "./dom.js";
import { emoji } from "./emoji.js";
import { showJson } from "./drawer.js";
import { mrkdwn } from "./mrkdwn.js";
import { avatar, nameOf } from "./people.js";
import { act, isReply, look, refresh, store } from "./store.js";
import { clockTime, dayName, fullTime } from "./time.js";

const GROUPED_S = 300;

function host(message) {
  return {
    act: async (block, element, value) => {
      await act("click", { channel: message.channel, ts: message.ts, what: element.action_id, block_id: block.block_id, value, version: message.version });
      await refresh();
    },
  };
}

function files(message) {
  return (message.files ?? []).map((file) => h("a", { class: "file", href: `practice/files/${encodeURIComponent(file.id)}`, target: "_blank", rel: "noopener" }, file.mimetype?.startsWith("image/") ? h("img", { src: `practice/files/${encodeURIComponent(file.id)}`, alt: file.alt_txt || file.title }) : icon(ICONS.file), file.title ?? file.name));
}

function replies(message, inThread) {
  if (inThread) return null;
  const found = store.state.messages.filter((m) => m.channel === message.channel && m.thread_ts === message.ts && isReply(m));
  if (!found.length) return null;
  const faces = [...new Set(found.map((m) => m.user))].slice(0, 3).map((id) => avatar(id, "tiny"));
  const words = found.length === 1 ? "1 reply" : `${found.length} replies`;
  const last = `Last reply ${dayName(Number(found.at(-1).ts)).toLowerCase()} at ${clockTime(Number(found.at(-1).ts))}`;
  return h("button", { class: "replies", type: "button", onclick: () => look({ thread: { channel: message.channel, ts: message.ts }, drawer: false }) }, faces, h("span", { class: "count" }, words), h("span", { class: "last" }, last));
}

function body(message) {
  const parts = message.blocks.length ? renderBlocks(message.blocks, host(message)) : [h("div", { class: "text" }, message.text ? mrkdwn(message.text) : null)];
  if (message.edited_ts) {
    const note = h("span", { class: "edited", title: fullTime(Number(message.edited_ts)) }, " (edited)");
    const last = parts.at(-1);
    (message.blocks.length ? parts : [last]).at(-1).classList.contains("text") ? last.append(note) : parts.push(note);
  }
  return parts;
}

function draw(message, { follows, inThread }) {
  const at = Number(message.ts);
  const isApp = Boolean(message.bot_id);
  const only = message.ephemeral_to && h("div", { class: "only" }, icon(ICONS.eye), "Only visible to you");
  const time = h("time", { class: "time", datetime: new Date(at * 1000).toISOString(), title: fullTime(at) }, clockTime(at));
  const head = h("div", { class: "head" }, h("span", { class: "name" }, nameOf(message.user)), isApp && h("span", { class: "badge" }, "APP"), time);
  const reactions = Object.entries(message.reactions ?? {}).map(([name, users]) => h("span", { class: "reaction" }, emoji(name) ?? `:${name}:`, ` ${users.length}`));
  const tools = h("div", { class: "tools" },
    !message.ephemeral_to && !inThread && h("button", { type: "button", class: "icon-btn", "aria-label": "Reply in thread", title: "Reply in thread", onclick: () => look({ thread: { channel: message.channel, ts: message.thread_ts ?? message.ts }, drawer: false }) }, icon(ICONS.thread)),
    h("button", { type: "button", class: "icon-btn", "aria-label": "Show raw JSON", title: "Show raw JSON", onclick: () => showJson(message) }, icon(ICONS.code)));
  return h("article", { class: `message${follows ? " follows" : ""}${message.ephemeral_to ? " ephemeral" : ""}`, dataset: { ts: message.ts }, "aria-label": `${nameOf(message.user)} at ${clockTime(at)}` },
    h("div", { class: "gutter" }, follows ? time : avatar(message.user)),
    h("div", { class: "content" }, only, !follows && head, body(message), files(message), reactions.length ? h("div", { class: "reactions" }, reactions) : null, replies(message, inThread)),
    tools);
}

function dayLine(seconds) {
  return h("div", { class: "day", role: "separator" }, h("span", {}, dayName(seconds)));
}

/** Draw `messages` into `list`, with a line for each day; messages that have not changed stay untouched. */
export function drawMessages(list, messages, { inThread = false } = {}) {
  const wanted = [];
  let previous = null;
  for (const message of messages) {
    const at = Number(message.ts);
    const day = dayName(at);
    const newDay = !previous || dayName(Number(previous.ts)) !== day;
    if (newDay && !inThread) wanted.push({ key: `day/${day}/${store.me}`, make: () => dayLine(at) });
    const follows = Boolean(previous) && !newDay && previous.user === message.user && previous.ephemeral_to === message.ephemeral_to && !message.ephemeral_to && at - Number(previous.ts) < GROUPED_S && !previous.blocks.length && !message.blocks.length;
    const count = store.state.messages.filter((m) => m.channel === message.channel && m.thread_ts === message.ts && isReply(m)).length;
    const key = [store.me, message.channel, message.ts, message.version, Object.keys(message.reactions ?? {}).length, count, follows, inThread, day].join("/");
    wanted.push({ key, make: () => draw(message, { follows, inThread }) });
    previous = message;
  }
  keyed(list, wanted);
}
