// rich_text blocks and cells.

import { h } from "./dom.js";
import { emoji } from "./emoji.js";
import { link, mentionChannel, mentionGroup, mentionUser } from "./mrkdwn.js";
import { dateWords } from "./time.js";

function styled(node, style) {
  let result = node;
  for (const [name, tag] of [["code", "code"], ["bold", "strong"], ["italic", "em"], ["strike", "s"]]) {
    if (style?.[name]) result = h(tag, {}, result);
  }
  return result;
}

function leaf(element) {
  switch (element.type) {
    case "text": return styled(element.text, element.style);
    case "link": return styled(link(element.url, element.text ?? element.url), element.style);
    case "user": return mentionUser(element.user_id);
    case "channel": return mentionChannel(element.channel_id);
    case "usergroup": return mentionGroup(element.usergroup_id);
    case "broadcast": return h("span", { class: "mention loud" }, `@${element.range}`);
    case "emoji": return h("span", { class: "emoji" }, emoji(element.name) ?? `:${element.name}:`);
    case "date": return h("time", { class: "date" }, dateWords(element.timestamp, element.format));
    case "color": return h("code", {}, element.value);
    default: throw new Error(`unknown rich text element: ${element.type}`);
  }
}

const leaves = (element) => (element.elements ?? []).map(leaf);

function part(element) {
  switch (element.type) {
    case "rich_text_section": return h("div", { class: "rich" }, leaves(element));
    case "rich_text_quote": return h("blockquote", {}, leaves(element));
    case "rich_text_preformatted": return h("pre", {}, leaves(element));
    case "rich_text_list": {
      const items = element.elements.map((item) => h("li", {}, leaves(item)));
      return h(element.style === "ordered" ? "ol" : "ul", { class: `indent-${element.indent ?? 0}` }, items);
    }
    default: throw new Error(`unknown rich text part: ${element.type}`);
  }
}

export const richText = (block) => h("div", { class: "rich-text" }, block.elements.map(part));
