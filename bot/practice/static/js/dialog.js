// What every dialog needs: the keyboard stays inside it, and the platform's own "are you sure".

import { h } from "./dom.js";
import { textObject } from "./mrkdwn.js";

const FOCUSABLE = "button:not([disabled]), input, select, textarea, a[href], [tabindex='0']";

/** Keep Tab inside `box`, and call `escape` for Esc. */
export function trapFocus(event, box, escape) {
  if (event.key === "Escape") {
    event.preventDefault();
    escape();
  } else if (event.key === "Tab") {
    const inside = [...box.querySelectorAll(FOCUSABLE)];
    const [first, last] = [inside[0], inside.at(-1)];
    if (event.shiftKey && document.activeElement === first) { event.preventDefault(); last.focus(); }
    else if (!event.shiftKey && document.activeElement === last) { event.preventDefault(); first.focus(); }
  }
}

/** The platform's own question before a button with `confirm`; resolves to true or false. */
export function confirm(question) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const end = (answer) => {
      back.remove();
      before?.focus();
      resolve(answer);
    };
    const yes = h("button", { type: "button", class: `btn big ${question.style ?? "primary"}`, onclick: () => end(true) }, question.confirm ? textObject(question.confirm) : "Yes");
    const box = h("div", { class: "modal small", role: "alertdialog", "aria-modal": "true", "aria-label": question.title.text },
      h("header", { class: "modal-head" }, h("h2", {}, textObject(question.title))),
      h("div", { class: "modal-body" }, h("div", { class: "text" }, textObject(question.text))),
      h("footer", { class: "modal-foot" }, h("button", { type: "button", class: "btn big", onclick: () => end(false) }, question.deny ? textObject(question.deny) : "Cancel"), yes));
    box.addEventListener("keydown", (event) => trapFocus(event, box, () => end(false)));
    const back = h("div", { class: "backdrop" }, box);
    document.body.append(back);
    yes.focus();
  });
}
