// Slack's mrkdwn as DOM nodes: bold, italic, strike, code, quotes, links, dates, mentions, emoji.

import { h } from "./dom.js";
import { emoji } from "./emoji.js";
import { channelOf, myself, user, usergroup } from "./store.js";
import { dateWords } from "./time.js";

export const decode = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

/** A link that leaves the page, or its words when the address is not http(s). */
export function link(address, words) {
  if (!/^https?:\/\//i.test(address)) return document.createTextNode(words);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, words);
}

const chip = (words, loud) => h("span", { class: loud ? "mention loud" : "mention" }, words);

export function mentionUser(id, label) {
  const person = user(id);
  return chip(`@${person?.name ?? label ?? id}`, person && person.id === myself().id);
}

export function mentionChannel(id, label) {
  return chip(`#${channelOf(id)?.name ?? (label || "private-channel")}`);
}

export function mentionGroup(id, label) {
  const group = usergroup(id);
  return chip(`@${group?.handle ?? (label ?? id).replace(/^@/, "")}`, group?.users.includes(myself().id));
}

function angle(body) {
  const bar = body.indexOf("|");
  const target = decode(bar < 0 ? body : body.slice(0, bar));
  const label = bar < 0 ? null : decode(body.slice(bar + 1));
  if (target.startsWith("@")) return mentionUser(target.slice(1), label);
  if (target.startsWith("#")) return mentionChannel(target.slice(1), label);
  if (target.startsWith("!subteam^")) return mentionGroup(target.slice(9), label);
  if (target.startsWith("!date^")) {
    const [, seconds, pattern, address] = target.split("^");
    const words = dateWords(Number(seconds), pattern ?? "{date} {time}");
    const node = h("time", { class: "date", title: label ?? "" }, words);
    return address ? link(address, words) : node;
  }
  if (target.startsWith("!")) return chip(`@${target.slice(1)}`, true);
  if (/^(https?:|mailto:)/i.test(target)) return link(target, label ?? target);
  return document.createTextNode(`<${decode(body)}>`);
}

const INLINE = [
  [/`([^`\n]+)`/, (m) => h("code", {}, decode(m[1]))],
  [/<([^<>\n]+)>/, (m) => angle(m[1])],
  [/:([a-z0-9_+-]+):/, (m) => (emoji(m[1]) ? h("span", { class: "emoji", title: m[0] }, emoji(m[1])) : null)],
  [/(?<![\w*])\*(?![\s*])([^*\n]+?)(?<!\s)\*(?![\w*])/, (m) => h("strong", {}, inline(m[1]))],
  [/(?<![\w_])_(?![\s_])([^_\n]+?)(?<!\s)_(?![\w_])/, (m) => h("em", {}, inline(m[1]))],
  [/(?<![\w~])~(?![\s~])([^~\n]+?)(?<!\s)~(?![\w~])/, (m) => h("s", {}, inline(m[1]))],
];

function inline(text) {
  let first = null;
  for (const [pattern, make] of INLINE) {
    const match = pattern.exec(text);
    if (match && (!first || match.index < first.match.index)) first = { match, make };
  }
  if (!first) return text ? [decode(text)] : [];
  const { match, make } = first;
  const end = match.index + match[0].length;
  return [...inlineText(text.slice(0, match.index)), make(match) ?? match[0], ...inline(text.slice(end))];
}

const inlineText = (text) => (text ? inline(text) : []);

function lines(text) {
  const out = [];
  let quote = null;
  for (const line of text.split("\n")) {
    const quoted = /^(?:&gt;|>)\s?(.*)$/.exec(line);
    if (quoted) {
      if (!quote) out.push((quote = h("blockquote", {})));
      else quote.append(h("br"));
      quote.append(...inline(quoted[1]));
    } else {
      if (out.length && !quote) out.push(h("br"));
      quote = null;
      out.push(...inline(line));
    }
  }
  return out;
}

/** Nodes for a mrkdwn text. */
export function mrkdwn(text) {
  return text.split(/```/).flatMap((part, index) =>
    index % 2 ? [h("pre", {}, decode(part.replace(/^\n|\n$/g, "")))] : lines(part),
  );
}

/** Nodes for a text object: plain_text shows emoji names as emoji when it says so, and nothing else is parsed. */
export function textObject(object) {
  if (!object) return [];
  if (object.type === "mrkdwn") return mrkdwn(object.text);
  const words = decode(object.text);
  if (object.emoji === false) return [words];
  return words.split(/(:[a-z0-9_+-]+:)/).map((part) => emoji(part.slice(1, -1)) ?? part);
}
