// The layer above the page: the app's dialogs.

import { renderBlocks } from "./blocks.js";
import { trapFocus } from "./dialog.js";
import { h, icon, ICONS } from "./dom.js";
import { textObject } from "./mrkdwn.js";
import { act, myself, refresh, store } from "./store.js";

let shown = null;
let opener = null;

function values(fields) {
  return Object.fromEntries(fields.filter((field) => field.value).map((field) => [field.key, field.value()]));
}

/** What was typed so far, in the form of state.values, so that a view that changes keeps it. */
function typed(fields) {
  const result = {};
  for (const { block, element, value } of fields) {
    if (!value || !["plain_text_input", "number_input"].includes(element.type)) continue;
    (result[block.block_id] ??= {})[element.action_id] = { value: value() };
  }
  return result;
}

function buildView(view, kept) {
  const host = {
    fields: [],
    errors: view.errors,
    state: { ...view.state, ...kept },
    act: async (block, element, value) => {
      await act("view_click", { view_id: view.id, what: element.action_id, value, values: values(host.fields) });
      await refresh();
    },
  };
  const submitButton = view.body.submit && h("button", { class: "btn primary big", type: "submit" }, textObject(view.body.submit));
  const submit = async (event) => {
    event.preventDefault();
    if (!submitButton || submitButton.disabled) return;
    submitButton.disabled = true;
    submitButton.classList.add("busy");
    await act("submit", { view_id: view.id, values: values(host.fields) });
    submitButton.disabled = false;
    submitButton.classList.remove("busy");
    await refresh();
  };
  const close = (everything) => act("close", { view_id: view.id, everything }).then(refresh);
  const general = view.errors[""];
  const box = h("form", { class: "modal", role: "dialog", "aria-modal": "true", "aria-labelledby": "modal-title", novalidate: true, onsubmit: submit, dataset: { viewId: view.id } },
    h("header", { class: "modal-head" }, h("h2", { id: "modal-title" }, textObject(view.body.title)), h("button", { type: "button", class: "icon-btn", "aria-label": "Close dialog", onclick: () => close(true) }, icon(ICONS.close))),
    h("div", { class: "modal-body" }, general && h("div", { class: "broken", role: "alert" }, general), renderBlocks(view.body.blocks, host)),
    h("footer", { class: "modal-foot" }, h("button", { type: "button", class: "btn big", onclick: () => close(false) }, view.body.close ? textObject(view.body.close) : "Cancel"), submitButton));
  box.addEventListener("keydown", (event) => trapFocus(event, box, () => close(false)));
  return { box, host };
}

/** Draw the top dialog of the person in this window; nothing happens while it is the one already shown. */
export function drawModals() {
  const layer = document.getElementById("layer");
  const stack = store.state.stacks[myself().id] ?? [];
  const view = stack.at(-1);
  const key = view && `${store.me}/${view.id}/${view.version}/${JSON.stringify(view.errors)}`;
  if ((shown?.key ?? undefined) === key) return;
  const kept = view && shown?.id === view.id ? typed(shown.host.fields) : {};
  layer.replaceChildren();
  if (!view) {
    shown = null;
    if (opener?.isConnected) opener.focus();
    return;
  }
  if (!shown) opener = document.activeElement;
  const { box, host } = buildView(view, kept);
  shown = { key, id: view.id, host };
  layer.append(h("div", { class: "backdrop" }, box));
  const wrong = box.querySelector("[aria-invalid]");
  const first = wrong ?? box.querySelector("[autofocus]") ?? box.querySelector(".modal-body .field, .modal-body input") ?? box.querySelector(".modal-foot .primary");
  first?.focus();
}
