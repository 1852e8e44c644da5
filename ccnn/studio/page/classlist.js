/* The list of classes in a dialog: rename, remove, and whether a class is an object or a surface. */
import {call} from "./api.js"
import {byId, element, swatch} from "./element.js"
import {texts} from "./texts.js"

export class ClassList {
    constructor(store) {
        this.store = store
        store.addEventListener("classes", () => {
            if (byId("classes").open && !byId("class-list").contains(document.activeElement)) this.show()
        })
    }

    open() {
        this.shown = null
        this.show()
        if (!byId("classes").open) byId("classes").showModal()
    }

    /* The rows again if classes changed; else they stay, because a pointer may be on them. The focus keeps its place. */
    show() {
        byId("class-problem").textContent = ""
        const classes = this.store.classes.filter(({label}) => label > 0), shown = JSON.stringify(classes)
        if (shown === this.shown) return
        this.shown = shown
        const controls = () => [...byId("class-list").querySelectorAll("input, select, button")]
        const place = controls().indexOf(document.activeElement)
        byId("class-list").replaceChildren(...classes.map(found => element("li", {}, this.row(found))))
        if (!classes.length) byId("class-list").replaceChildren(element("li", {}, texts.noClasses))
        if (place >= 0) (controls()[place] ?? controls().at(-1))?.focus()
    }

    row({name, colour, photographs, kind = null, found = null}) {
        const input = element("input", {type: "text", value: name, maxlength: 60, "aria-label": texts.className(name)})
        const select = element("select", {
            "aria-label": texts.kindLabel(name), title: texts.kindHint,
            onchange: () => this.change({kind: name, is: select.value || null})},
            ...["", "object", "surface"].map(value => element("option", {value, selected: value === (kind ?? "")},
                                                              texts.kinds(value, found))))
        return element("form", {onsubmit: event => {
            event.preventDefault()
            this.change({rename: name, to: input.value.trim()})
        }}, swatch(colour), input, element("span", {class: "note"}, texts.classCount(photographs)), select,
            element("button", {"aria-label": texts.renameLabel(name)}, texts.rename),
            element("button", {type: "button", "aria-label": texts.removeLabel(name),
                               onclick: () => this.change({remove: name})}, texts.remove))
    }

    async change(change) {
        try {
            this.store.takeClasses(await call("POST", "/api/classes", change))
            this.show()
        } catch (error) {
            byId("class-problem").textContent = error.message
        }
    }
}
