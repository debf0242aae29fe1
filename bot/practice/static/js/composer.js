// Where people write: messages, and slash commands with the hints of the app's manifest.

import { h, icon, ICONS } from "./dom.js";
import { act, refresh, store } from "./store.js";

/** The commands and their forms that fit what has been typed, as [text to type, what it is]. */
function suggestions(text) {
  if (!text.startsWith("/")) return [];
  const found = [];
  for (const command of store.state.commands) {
    const forms = command.usage_hint.split("|").map((form) => form.trim()).filter(Boolean);
    const [name, ...rest] = text.split(" ");
    if (!command.name.startsWith(name)) continue;
    if (!text.includes(" ")) found.push([`${command.name} `, command.description]);
    const typed = rest.join(" ").toLowerCase();
    for (const form of forms) {
      const word = form.split(" ")[0].toLowerCase();
      if (typed && !(word.startsWith(typed) || form.toLowerCase().startsWith(typed))) continue;
      if (`${command.name} ${form}` !== text.trim()) found.push([`${command.name} ${form}`, ""]);
    }
  }
  return found.slice(0, 8);
}

/** A composer; `place()` says where it writes: {channel, thread_ts?, name}. */
export function composer(place) {
  let choices = [];
  let chosen = 0;
  const list = h("div", { class: "suggest", role: "listbox", id: `suggest-${Math.random()}`, "aria-label": "Commands", hidden: true });
  const field = h("textarea", { class: "compose", rows: 1, "aria-autocomplete": "list", "aria-controls": list.id, spellcheck: "false" });
  const send = h("button", { type: "button", class: "send", "aria-label": "Send", disabled: true, onclick: () => submit() }, icon(ICONS.send));

  function grow() {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight, 160)}px`;
    send.disabled = !field.value.trim();
  }

  function suggest(keep = false) {
    choices = suggestions(field.value);
    if (!keep) chosen = -1;
    list.hidden = choices.length === 0;
    list.replaceChildren(...choices.map(([text, what], index) => h("button", {
      type: "button", role: "option", tabindex: "-1", "aria-selected": index === chosen ? "true" : "false",
      onmousedown: (event) => { event.preventDefault(); take(index); },
    }, h("span", { class: "command" }, text), what && h("span", { class: "what" }, what))));
  }

  function take(index) {
    field.value = choices[index][0];
    grow();
    suggest();
    field.focus();
  }

  async function submit() {
    const text = field.value.trim();
    if (!text) return;
    const { channel, thread_ts } = place();
    field.value = "";
    grow();
    suggest();
    if (text.startsWith("/")) box.classList.add("busy");
    await act(text.startsWith("/") ? "command" : "say", { text, channel, thread_ts });
    box.classList.remove("busy");
    await refresh();
  }

  function onkeydown(event) {
    const open = !list.hidden;
    if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      chosen = (chosen + step + choices.length + (chosen < 0 && step < 0 ? 1 : 0)) % choices.length;
      suggest(true);
    } else if (open && event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      take(Math.max(0, chosen));
    } else if (open && event.key === "Escape") {
      event.stopPropagation();
      list.hidden = true;
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (open && chosen >= 0) take(chosen);
      else submit();
    }
  }

  field.addEventListener("input", () => { grow(); suggest(); });
  field.addEventListener("keydown", onkeydown);
  field.addEventListener("blur", () => { list.hidden = true; });
  field.addEventListener("focus", () => suggest());
  const box = h("div", { class: "composer" }, list, h("div", { class: "compose-box" }, field, send), h("div", { class: "compose-hint" }, h("kbd", {}, "/"), " for commands, ", h("kbd", {}, "Tab"), " takes a suggestion, ", h("kbd", {}, "Enter"), " sends"));
  return { node: box, relabel() {
    const { name, thread_ts } = place();
    field.placeholder = thread_ts ? "Reply…" : `Message ${name}`;
    field.setAttribute("aria-label", field.placeholder);
  } };
}
