// Buttons, menus and inputs. An element tells its host what was done; the host knows whether it is a message or a view.

import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { decode, textObject } from "./mrkdwn.js";
import { store } from "./store.js";

const words = (object) => (object ? decode(object.text) : "");
const options = (element) => [...(element.options ?? []), ...(element.option_groups ?? []).flatMap((group) => group.options)];

/** The server's entry of state.values for an element, or its initial value, as a simple value. */
function current(element, entry) {
  const from = entry ?? {};
  switch (element.type) {
    case "static_select":
    case "radio_buttons": return (entry ? from.selected_option : element.initial_option)?.value ?? "";
    case "multi_static_select":
    case "checkboxes": return ((entry ? from.selected_options : element.initial_options) ?? []).map((option) => option.value);
    case "datepicker": return (entry ? from.selected_date : element.initial_date) ?? "";
    case "timepicker": return (entry ? from.selected_time : element.initial_time) ?? "";
    case "users_select": return (entry ? from.selected_user : element.initial_user) ?? "";
    case "multi_users_select": return (entry ? from.selected_users : element.initial_users) ?? [];
    case "channels_select": return (entry ? from.selected_channel : element.initial_channel) ?? "";
    case "conversations_select": return (entry ? from.selected_conversation : element.initial_conversation) ?? "";
    default: return (entry ? from.value : element.initial_value) ?? "";
  }
}

async function asked(element) {
  return !element.confirm || (await confirm(element.confirm));
}

function button(element, host) {
  const node = h("button", {
    type: "button",
    class: `btn ${element.style ?? ""}`,
    "aria-description": element.accessibility_label,
    dataset: { actionId: element.action_id },
    onclick: async () => {
      if (!(await asked(element))) return;
      if (element.url && /^https?:\/\//i.test(element.url)) window.open(element.url, "_blank", "noopener,noreferrer");
      node.disabled = true;
      node.classList.add("busy");
      await host.act(element);
      node.disabled = false;
      node.classList.remove("busy");
    },
  }, textObject(element.text));
  return { node };
}

function selectNode(element, choices, chosen, host) {
  const prompt = h("option", { value: "" }, words(element.placeholder) || "Choose an option");
  const node = h("select", {
    class: "field select",
    "aria-label": host.label ?? (words(element.placeholder) || "Choose an option"),
    dataset: { actionId: element.action_id },
  }, prompt, choices.map(([value, label]) => h("option", { value, selected: chosen === value }, label)));
  const value = () => node.value || null;
  node.addEventListener("change", async () => {
    if (host.dispatches && (await asked(element))) host.act(element, value());
  });
  return { node, value };
}

/** Boxes to tick; choices are [value, nodes of the label]. A menu of many choices is a list of boxes too. */
function ticks(element, choices, chosen, host, { many, framed = false }) {
  const name = `${element.action_id}-${Math.random()}`;
  const boxes = choices.map(([value, label]) => {
    const box = h("input", { type: many ? "checkbox" : "radio", name, value, checked: [].concat(chosen).includes(value) });
    return [box, h("label", { class: "tick" }, box, h("span", {}, label))];
  });
  const node = h("div", { class: framed ? "ticks many" : "ticks", role: many ? "group" : "radiogroup", "aria-label": host.label, dataset: { actionId: element.action_id } }, boxes.map(([, label]) => label));
  const value = () => {
    const on = boxes.filter(([box]) => box.checked).map(([box]) => box.value);
    return many ? on : (on[0] ?? null);
  };
  node.addEventListener("change", () => host.dispatches && host.act(element, value()));
  return { node, value };
}

function labelled(option) {
  const note = option.description && h("span", { class: "option-note" }, textObject(option.description));
  return [option.value, [textObject(option.text), note]];
}

function input(element, chosen, host) {
  const long = element.type === "plain_text_input" && element.multiline;
  const kinds = { datepicker: "date", timepicker: "time", number_input: "text", plain_text_input: "text" };
  const node = h(long ? "textarea" : "input", {
    class: "field",
    type: long ? null : kinds[element.type],
    inputmode: element.type === "number_input" ? "decimal" : null,
    rows: long ? 4 : null,
    placeholder: words(element.placeholder),
    maxlength: element.max_length,
    "aria-label": host.label ?? (words(element.placeholder) || "Value"),
    autofocus: element.focus_on_load,
    dataset: { actionId: element.action_id },
    value: chosen,
  });
  const value = () => node.value || null;
  if (element.type.endsWith("picker")) node.addEventListener("change", () => host.dispatches && host.act(element, value()));
  return { node, value };
}

function overflow(element, host) {
  const list = h("div", { class: "menu", role: "menu", hidden: true }, element.options.map((option) =>
    h("button", { type: "button", role: "menuitem", onclick: async () => {
      list.hidden = true;
      if (await asked(element)) host.act(element, option.value);
    } }, textObject(option.text))));
  const opener = h("button", { type: "button", class: "btn", "aria-haspopup": "menu", "aria-label": "More actions", dataset: { actionId: element.action_id }, onclick: () => { list.hidden = !list.hidden; } }, "⋯");
  const node = h("span", { class: "menu-host", onkeydown: (event) => { if (event.key === "Escape" && !list.hidden) { list.hidden = true; opener.focus(); event.stopPropagation(); } } }, opener, list);
  return { node };
}

function people() {
  return store.state.users.filter((u) => !u.deleted && !u.is_bot).map((u) => [u.id, `${u.real_name} (@${u.name})`]);
}

function image(element) {
  return { node: h("span", { class: "thumb", role: "img", "aria-label": element.alt_text, title: element.alt_text }, element.alt_text) };
}

/** `{node, value?}` for an element. `host`: {act(element, value), dispatches, label, entry(element)}. */
export function renderElement(element, host) {
  const chosen = current(element, host.entry?.(element));
  switch (element.type) {
    case "button": return button(element, host);
    case "overflow": return overflow(element, host);
    case "image": return image(element);
    case "radio_buttons": return ticks(element, options(element).map(labelled), chosen, host, { many: false });
    case "checkboxes": return ticks(element, options(element).map(labelled), chosen, host, { many: true });
    case "multi_static_select": return ticks(element, options(element).map(labelled), chosen, host, { many: true, framed: true });
    case "multi_users_select": return ticks(element, people(), chosen, host, { many: true, framed: true });
    case "static_select": return selectNode(element, options(element).map((o) => [o.value, words(o.text)]), chosen, host);
    case "users_select": return selectNode(element, people(), chosen, host);
    case "channels_select":
    case "conversations_select":
      return selectNode(element, store.state.channels.filter((c) => !c.dm_user).map((c) => [c.id, `#${c.name}`]), chosen, host);
    case "plain_text_input":
    case "number_input":
    case "datepicker":
    case "timepicker": return input(element, chosen, host);
    default: throw new Error(`unknown element type: ${element.type}`);
  }
}
