/* One photograph of the grid: its picture, the mask on it, its tags. */
import {address} from "./api.js"
import {element, nameElement, swatch} from "./element.js"
import {disputes} from "./listing.js"
import {texts} from "./texts.js"
import {inTurn} from "./turns.js"

export const cellId = number => `photograph-${number}`

/* Pictures are asked for only if the cell stays for a moment: scrolling past thousands asks for none. */
const PATIENCE = 70         // milliseconds

export class Cell {
    constructor(store, number) {
        this.store = store
        this.number = number
        this.thumbnail = element("img", {alt: "", decoding: "async", draggable: "false", class: "thumbnail"})
        this.mask = null
        this.frame = element("div", {class: "frame"}, this.thumbnail)
        this.chips = element("div", {class: "chips"})
        this.root = element("div", {role: "option", id: cellId(number), class: "cell", "data-number": number},
                            this.frame, this.chips)
        this.thumbnail.addEventListener("load", () => this.root.classList.add("loaded"))
        this.timer = setTimeout(() => this.load(), PATIENCE)
    }

    remove() {
        clearTimeout(this.timer)
        this.thumbnail.removeAttribute("src")       // a picture that is still on its way is given up
        this.mask?.removeAttribute("src")
        this.maskSource = null                      // one that waits for its turn, too
        this.root.remove()
    }

    load() {
        this.timer = null
        const photograph = this.store.photographs.get(this.number)
        const source = address.thumbnail(photograph)
        if (!photograph.problem && this.thumbnail.getAttribute("src") !== source) this.thumbnail.src = source
        this.showMask()
    }

    /* The newest mask replaces the one before when it has arrived. */
    showMask() {
        const version = this.masks && (this.before ? this.store.status.model?.previous
            : this.store.predictions.get(this.number)?.version)
        if (!version) {
            this.mask?.remove()
            this.mask = this.maskSource = null
            return
        }
        const source = address.mask(this.store.photographs.get(this.number), version, 320,
                                    this.before ? {of: "previous"} : {})
        if (this.maskSource === source) return                  // it is there, or on its way
        this.maskSource = source
        inTurn(done => this.maskSource === source ? this.fetchMask(source, done) : done())
    }

    fetchMask(source, done) {
        const mask = element("img", {alt: "", decoding: "async", draggable: "false", class: "mask"})
        mask.addEventListener("load", () => {
            done()
            if (this.maskSource !== source) return
            this.mask?.remove()
            this.mask = mask
            this.frame.append(mask)
        })
        mask.addEventListener("error", () => {
            done()
            if (this.maskSource === source) this.maskSource = null      // the next news try again
        })
        mask.src = source
    }

    /* Show what is known now. masks: show them, too; before: those before the last training. */
    fill({place, places, selected, masks, before}) {
        const photograph = this.store.photographs.get(this.number)
        const {tags, large, problem, name, scribble} = photograph
        const disputed = disputes(this.store.predictions.get(this.number), this.store.modelLabels())
        this.root.setAttribute("aria-posinset", place + 1)
        this.root.setAttribute("aria-setsize", places)
        this.root.setAttribute("aria-selected", selected)
        this.root.setAttribute("aria-label", describe(this.store, photograph, disputed))
        this.root.title = problem ? `${name}: ${problem}` : name
        this.root.dataset.state = problem ? "problem" : tags === null ? "undecided" : tags.length ? "tagged" : "none"
        this.root.classList.toggle("disputed", disputed.length > 0)
        this.chips.replaceChildren(...chips(this.store, photograph), scribble ? chip("✎") : "")
        Object.assign(this, {masks, before})
        if (this.timer === null) this.load()
    }
}

function chip(...content) {
    return element("span", {class: "chip"}, ...content)
}

function chips(store, {tags, large, problem}) {
    if (problem) return [chip(texts.cannotBeUsed)]
    if (tags === null) return [chip(texts.undecided)]
    if (!tags.length) return [chip(texts.none)]
    return tags.map(label => {
        const {name, colour} = store.classOf(label)
        return chip(swatch(colour), nameElement(name), large.includes(label) ? element("b", {}, texts.largeMark) : null)
    })
}

export function describe(store, {name, tags, large, problem}, disputed) {
    const said = tags?.map(label => texts.tagSpoken(store.classOf(label).name, large.includes(label)))
    return [name, problem ?? (tags === null ? texts.undecided : tags.length ? said.join(", ") : texts.none),
            ...disputed.map(dispute => texts.dispute(store.classOf(dispute.label).name, dispute))].join(", ")
}
