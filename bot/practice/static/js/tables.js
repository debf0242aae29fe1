// table and data_table blocks.

import { h } from "./dom.js";
import { decode } from "./mrkdwn.js";
import { richText } from "./richtext.js";

const NUMBER = /^[~≈<>+\-−]?\s?[$€£]?\s?\d[\d,.  ]*\s?(%|\/h|h|GB|×|x)?$/;
const NOTHING = /^[—–-]?$/;

function words(cell) {
  if (cell.type === "rich_text") return richText(cell);
  if (cell.type === "raw_text") return decode(cell.text);
  if (cell.type === "raw_number") return String(cell.value ?? cell.text);
  throw new Error(`unknown cell type: ${cell.type}`);
}

function row(cells, tag, settings) {
  return h("tr", {}, cells.map((cell, index) => {
    const setting = settings[index] ?? {};
    const content = words(cell);
    return h(tag, { class: `to-${setting.align ?? "left"}${setting.is_wrapped ? " wrapped" : ""}`, scope: tag === "th" ? "col" : null }, content);
  }));
}

export function table(block) {
  const [head, ...body] = block.rows;
  const settings = block.column_settings ?? [];
  const aligned = head.map((_, index) => ({ ...columnSetting(body, index), ...settings[index] }));
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row(head, "th", aligned)), h("tbody", {}, body.map((cells) => row(cells, "td", aligned)))));
}

/** Columns of numbers stand to the right, with their heading and whatever says "nothing". */
function columnSetting(body, index) {
  const cells = body.map((cells) => cells[index]).filter(Boolean);
  const texts = cells.map((cell) => (cell.type === "raw_text" ? decode(cell.text).trim() : "words")).filter((text) => !NOTHING.test(text));
  return texts.length > 0 && texts.every((text) => NUMBER.test(text)) ? { align: "right" } : {};
}

export function dataTable(block) {
  const size = block.page_size ?? 10;
  const [head, ...body] = block.rows;
  const place = h("div", { class: "data-table" });
  const caption = typeof block.caption === "string" ? block.caption : block.caption.text;
  const pages = Math.max(1, Math.ceil(body.length / size));
  const show = (page) => {
    const rows = [head, ...body.slice(page * size, (page + 1) * size)];
    const turn = (to, label, name) => h("button", { class: "btn tiny", type: "button", "aria-label": name, disabled: to < 0 || to >= pages, onclick: () => show(to) }, label);
    place.replaceChildren(
      h("div", { class: "caption" }, decode(caption)),
      table({ rows, column_settings: block.column_settings }),
    );
    if (pages > 1) place.append(h("div", { class: "pager" }, turn(page - 1, "‹", "Previous page"), `${page + 1} of ${pages}`, turn(page + 1, "›", "Next page")));
  };
  show(0);
  return place;
}
