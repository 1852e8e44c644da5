/* The classes as keys: press one to tag the photographs that keys act on. The same bar stands in the grid and in the
   photograph opened large. */
import {element, nameElement, swatch} from "./element.js"
import {pressed} from "./tags.js"
import {texts} from "./texts.js"

export class ClassBar {
    large = false               // the next key says "large", as with Shift

    /* acted(): photographs; press(action, label): "tag", "large", "none" or "undecided"; name(text): a class was typed;
       edit(): the list of classes is wanted. The last two may be left out. */
    constructor(root, store, {acted, press, name, edit}) {
        Object.assign(this, {root, store, acted, press})
        this.keys = element("div", {class: "keys"})
        root.append(this.keys)
        if (name) {
            this.input = element("input", {
                type: "text", placeholder: texts.typeClass, "aria-label": texts.typeClass, list: "class-names",
                maxlength: 60, autocomplete: "off", spellcheck: "false"})
            this.names = element("datalist", {id: "class-names"})
            const form = element("form", {class: "row", onsubmit: event => {
                event.preventDefault()
                name(this.input.value.trim())
                this.input.value = ""
            }}, this.input, this.names, element("button", {class: "plain"}, texts.addClass))
            root.append(form, element("button", {class: "plain", onclick: edit, "aria-label": texts.editClasses},
                                      texts.edit))
        }
    }

    /* The keys anew if classes changed; else they stay, because a pointer may be on them. */
    build() {
        const classes = this.store.classes.filter(({label}) => label > 0)
        const shown = JSON.stringify(classes.map(({label, name, colour}) => [label, name, colour]))
        if (shown === this.shown) return this.show()
        this.shown = shown
        const key = (action, hint, ...content) => element("button", {
            class: "key", "data-action": action, title: hint, "aria-pressed": "false",
            onclick: event => this.strike(action, event)}, ...content)
        const keys = classes.map(({label, name, colour}) => {
            const digit = label <= 9 ? `${label}` : ""
            const made = key("tag", texts.tagHint(label), swatch(colour, digit), nameElement(name),
                             element("b", {class: "size"}))
            made.dataset.label = label
            return made
        })
        const square = text => element("i", {class: "swatch", "aria-hidden": "true"}, text)
        if (classes.length) {
            keys.push(element("button", {class: "key", "data-action": "shift", title: texts.largeHint,
                                         "aria-pressed": "false", onclick: () => this.shift(!this.large)},
                              square("⇧"), texts.large))
            keys.push(key("none", texts.noneHint, square("0"), texts.noneKey))
            keys.push(key("undecided", texts.undecidedHint, square("⌫"), texts.undecided))
        }
        this.keys.replaceChildren(...keys)
        this.names?.replaceChildren(...classes.map(({name}) => element("option", {value: name})))
        this.show()
    }

    shift(large) {
        this.large = large
        this.show()
    }

    strike(action, event) {
        const label = Number(event.currentTarget.dataset.label)
        if (action === "tag" && (this.large || event.shiftKey)) this.press("large", label)
        else this.press(action, label)
        this.shift(false)
    }

    /* Which keys are pressed, for the photographs that they act on. */
    show() {
        const photographs = this.acted()
        for (const key of this.keys.children) {
            const label = Number(key.dataset.label)
            const has = {
                tag: ({tags}) => tags?.includes(label),
                none: ({tags}) => tags?.length === 0,
                undecided: ({tags}) => tags === null,
                shift: () => this.large,
            }[key.dataset.action]
            key.setAttribute("aria-pressed", key.dataset.action === "shift" ? this.large : pressed(photographs, has))
            key.disabled = photographs.length === 0
            const size = key.querySelector(".size")
            if (size) size.textContent = photographs.some(({large}) => large.includes(label)) ? texts.largeMark : ""
        }
    }
}
