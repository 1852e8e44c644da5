/* Messages over the page. They go after a while; one about files that were refused stays until it is dismissed. */
import {byId, element} from "./element.js"
import {texts} from "./texts.js"

const MOST = 4              // that go by themselves

/* What lies behind a dialog is not seen. */
function put(shown) {
    const dialogs = document.querySelectorAll("dialog[open]")
    const seen = dialogs[dialogs.length - 1] ?? document.body
    seen.append(byId("messages"))
    byId("messages").append(shown)
}

export function message(text) {
    const shown = element("p", {}, text)
    put(shown)
    const fleeting = byId("messages").querySelectorAll("p")
    if (fleeting.length > MOST) fleeting[0].remove()
    setTimeout(() => shown.remove(), Math.max(4000, 70 * text.length))
}

/* sentences: one for each file that was refused, all of them. */
export function refusal(title, sentences) {
    if (!sentences.length) return
    const shown = element("div", {class: "stays", role: "alert"},
        element("div", {class: "head"}, element("strong", {}, title),
                element("button", {class: "plain", "aria-label": texts.dismiss, onclick: () => shown.remove()}, "✕")),
        element("ul", {tabindex: "0"}, ...sentences.map(sentence => element("li", {}, sentence))))
    put(shown)
}

/* A dialog that closes takes no message along. */
addEventListener("close", () => document.body.append(byId("messages")), true)
