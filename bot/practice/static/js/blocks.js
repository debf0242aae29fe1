// Block Kit as DOM nodes. A block that this page cannot draw says so in red: it never disappears.

import { h } from "./dom.js";
import { chart } from "./charts.js";
import { renderElement } from "./elements.js";
import { mrkdwn, textObject } from "./mrkdwn.js";
import { richText } from "./richtext.js";
import { dataTable, table } from "./tables.js";

function element(block, item, host, extra = {}) {
  const own = {
    ...extra,
    dispatches: true,
    act: (what, value) => host.act(block, what, value),
    entry: (what) => host.state?.[block.block_id]?.[what.action_id],
  };
  const made = renderElement(item, own);
  if (made.value) host.fields?.push({ block, element: item, value: made.value, key: item.action_id });
  return made.node;
}

function section(block, host) {
  const body = h("div", { class: "section-body" },
    block.text && h("div", { class: "text" }, textObject(block.text)),
    block.fields && h("div", { class: "fields" }, block.fields.map((field) => h("div", { class: "text" }, textObject(field)))));
  return h("div", { class: "section" }, body, block.accessory && h("div", { class: "accessory" }, element(block, block.accessory, host)));
}

function context(block) {
  return h("div", { class: "context" }, block.elements.map((item) =>
    item.type === "image" ? h("span", { class: "thumb small", role: "img", "aria-label": item.alt_text }, item.alt_text) : h("span", {}, textObject(item))));
}

/** Pictures come from elsewhere and this page asks nobody but its own server, so only uploads of this workspace show. */
function image(block) {
  const own = block.image_url && new URL(block.image_url, location.href).origin === location.origin;
  const address = own ? block.image_url : block.slack_file?.id && `practice/files/${encodeURIComponent(block.slack_file.id)}`;
  const picture = address ? h("img", { src: address, alt: block.alt_text }) : h("div", { class: "no-picture" }, `Picture: ${block.alt_text}`);
  return h("figure", { class: "picture" }, block.title && h("figcaption", {}, textObject(block.title)), picture);
}

function input(block, host) {
  const { element: item } = block;
  const label = h("div", { class: "field-label" }, textObject(block.label), block.optional && h("span", { class: "optional" }, " (optional)"));
  const own = {
    label: block.label.text,
    dispatches: Boolean(block.dispatch_action),
    act: (what, value) => host.act(block, what, value),
    entry: (what) => host.state?.[block.block_id]?.[what.action_id],
  };
  const made = renderElement(item, own);
  host.fields?.push({ block, element: item, value: made.value, key: block.block_id });
  const complaint = host.errors?.[block.block_id];
  if (complaint) made.node.setAttribute("aria-invalid", "true");
  return h("div", { class: complaint ? "input wrong" : "input" }, label, made.node,
    complaint && h("div", { class: "complaint", role: "alert" }, complaint),
    block.hint && h("div", { class: "hint" }, textObject(block.hint)));
}

function container(block, host) {
  const title = block.rich_text_title ? richText(block.rich_text_title) : h("span", {}, textObject(block.title));
  const sub = block.subtitle && h("div", { class: "subtitle" }, textObject(block.subtitle));
  const body = h("div", { class: "container-body" }, renderBlocks(block.child_blocks, host));
  if (!block.is_collapsible) {
    return h("section", { class: `container ${block.width ?? "standard"}` }, h("div", { class: block.has_header_divider ? "container-head ruled" : "container-head" }, title, sub), body);
  }
  return h("details", { class: `container ${block.width ?? "standard"}`, open: !block.default_collapsed }, h("summary", { class: "container-head" }, title, sub), body);
}

function markdown(block) {
  const text = block.text.replace(/\*\*(.+?)\*\*/g, "*$1*").replace(/^#{1,6} (.+)$/gm, "*$1*");
  return h("div", { class: "text" }, mrkdwn(text));
}

const BLOCKS = {
  header: (block) => h("h3", { class: "header" }, textObject(block.text)),
  section,
  context,
  divider: () => h("hr", {}),
  actions: (block, host) => h("div", { class: "actions" }, block.elements.map((item) => element(block, item, host))),
  image,
  input,
  rich_text: richText,
  table,
  data_table: dataTable,
  data_visualization: chart,
  container,
  markdown,
};

function draw(block, host) {
  const make = BLOCKS[block.type];
  try {
    if (!make) throw new Error(`unknown block type: ${block.type}`);
    return make(block, host);
  } catch (error) {
    console.error(error, block);
    return h("div", { class: "broken", role: "alert" }, `This block cannot be shown (${error.message}).`);
  }
}

/** Nodes for blocks. `host`: {act(block, element, value), state, errors, fields: []}. */
export function renderBlocks(blocks, host) {
  return blocks.map((block) => {
    const node = draw(block, host);
    node.classList.add("block");
    node.dataset.blockId = block.block_id ?? "";
    return node;
  });
}
