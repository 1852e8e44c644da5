/* A photograph opened large: with its mask, with what the constraints make of it, with marks drawn by hand. */
import {address, call} from "./api.js"
import {Areas} from "./areas.js"
import {ClassBar} from "./classbar.js"
import {byId, element, say} from "./element.js"
import {disputes} from "./listing.js"
import {ERASE, Scribbles} from "./scribbles.js"
import {texts} from "./texts.js"

const LAYERS = ["mask", "outline", "probability", "p", "nothing"]

export class Viewer {
    number = null
    layer = "mask"
    explanation = null

    /* press(action, label): a class key; step(move): the number of the photograph so many places on, or null;
       closed(number) */
    constructor(store, {press, step, closed}) {
        this.store = store
        this.step = step
        this.dialog = byId("viewer")
        this.areas = new Areas(store)
        this.scribbles = new Scribbles(store)
        this.keys = new ClassBar(byId("viewer-classes"), store, {acted: () => this.acted(), press})
        this.makeLayers()
        byId("close").onclick = () => this.dialog.close()
        byId("previous").onclick = () => this.go(-1)
        byId("next").onclick = () => this.go(1)
        byId("opacity").oninput = () => this.showOverlay()
        byId("probability").onchange = () => this.showOverlay()
        byId("picture").onload = () => this.fit()
        byId("overlay").onerror = () => {
            byId("overlay").hidden = true
            byId("overlay").removeAttribute("src")              // the next news try again
        }
        byId("marks").onload = () => this.scribbles.redraw()
        this.dialog.addEventListener("close", () => {
            const {number} = this
            this.number = this.question = null
            closed(number)
        })
        this.areas.addEventListener("solve", ({detail}) => {
            this.solved = detail
            if (Object.keys(this.areas.moved).length) this.choose("p")
            else this.showOverlay()
        })
        store.addEventListener("photographs", ({detail}) => {
            if (this.number !== null && (detail === null || detail.includes(this.number))) this.refresh()
        })
        store.addEventListener("classes", () => this.showClasses())
        store.addEventListener("answers", () => {
            if (this.number !== null) this.refresh()
        })
    }

    makeLayers() {
        byId("layers").replaceChildren(...LAYERS.map(layer => element("label", {},
            element("input", {type: "radio", name: "layer", value: layer, onchange: () => this.choose(layer)}),
            texts.layers[layer])))
    }

    get isOpen() {
        return this.dialog.open
    }

    acted() {
        return this.number === null ? [] : [this.store.photographs.get(this.number)]
    }

    open(number) {
        this.show(number)
        this.dialog.showModal()
        byId("viewer-title").focus()
    }

    go(move) {
        const number = this.step(move)
        if (number !== null) this.show(number)
    }

    show(number) {
        this.number = number
        this.explanation = this.solved = this.question = null
        const photograph = this.store.photographs.get(number)
        byId("viewer-title").firstChild.textContent = photograph.name
        byId("picture").src = address.picture(photograph)
        byId("picture").alt = photograph.name
        byId("sheet").style.backgroundImage = `url("${address.thumbnail(photograph)}")`
        say(byId("viewer-facts"), photograph.problem ?? "")
        byId("viewer-said").textContent = ""
        this.areas.show(number, null)
        this.scribbles.show(number)
        this.showClasses()
        if (photograph.tags?.length) byId("draw-class").value = photograph.tags[0]
        this.refresh(0)
    }

    fit() {
        const {naturalWidth, naturalHeight} = byId("picture")
        byId("sheet").style.setProperty("--ratio", naturalWidth / naturalHeight)
    }

    showClasses() {
        this.keys.build()
        const {classes} = this.store
        const options = classes.map(({label, name}) => element("option", {value: label}, name))
        const drawn = byId("draw-class").value || "1", probable = byId("probability").value || "1"
        byId("draw-class").replaceChildren(...options.slice(1), ...options.slice(0, 1),
                                           element("option", {value: ERASE}, texts.erase))
        byId("probability").replaceChildren(...options.map(option => option.cloneNode(true)))
        byId("draw-class").value = drawn
        byId("probability").value = probable
        for (const select of [byId("draw-class"), byId("probability")]) {
            if (select.selectedIndex < 0) select.selectedIndex = 0
        }
    }

    /* Something about this photograph changed: show it, and ask for the explanation when changes pause. */
    refresh(pause = 250) {
        const photograph = this.store.photographs.get(this.number)
        this.keys.show()
        const disputed = disputes(photograph, this.store.answers.get(this.number), this.store.modelLabels())
        byId("viewer-disputes").replaceChildren(...disputed.map(
            dispute => element("li", {}, texts.dispute(this.store.classOf(dispute.label).name, dispute))))
        const marks = byId("marks")
        marks.hidden = !photograph.scribble
        const source = photograph.scribble ? address.scribbles(photograph) : null
        if (!source) this.scribbles.redraw()
        else if (marks.getAttribute("src") !== source) marks.src = source
        this.showOverlay()
        const question = JSON.stringify([photograph, this.store.answers.get(this.number)?.version,
                                         this.store.classes.map(({name}) => name)])
        if (question === this.question) return
        this.question = question
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.explain(this.number, question), pause)
    }

    async explain(number, question) {
        if (number === null) return
        try {
            const {width, height, explanation} = await call("GET", `/api/photographs/${number}`)
            if (number !== this.number || question !== this.question) return
            say(byId("viewer-facts"), this.store.photographs.get(number).problem ?? texts.pixels(width, height))
            this.explanation = this.solved = explanation
            this.areas.show(number, explanation)
            this.showOverlay()
        } catch (error) {
            if (number !== this.number || question !== this.question) return
            this.question = null                                // the next news ask again
            say(byId("viewer-facts"), error.message)
        }
    }

    // --- what lies on the picture ----------------------------------------------------------------------------------

    choose(layer) {
        this.layer = layer
        this.showOverlay()
    }

    /* M: the mask on and off. */
    toggleMask() {
        this.choose(this.layer === "nothing" ? "mask" : "nothing")
    }

    showOverlay() {
        const {number, layer} = this
        const version = this.store.answers.get(number)?.version
        byId("layers").querySelector(`[value=${layer}]`).checked = true
        byId("probability-label").hidden = layer !== "probability"
        const source = {
            mask: () => version && address.mask(number, version, 1280),
            outline: () => version && address.mask(number, version, 1280, "outline"),
            probability: () => version && address.probability(number, version, byId("probability").value),
            p: () => this.solved?.mask,
            nothing: () => null,
        }[layer]()
        const overlay = byId("overlay")
        overlay.hidden = !source
        if (source && overlay.getAttribute("src") !== source) overlay.src = source
        overlay.style.opacity = layer === "outline" ? 1 : byId("opacity").value / 100
    }

    key(event) {
        if (event.key === "ArrowLeft") this.go(-1)
        else if (event.key === "ArrowRight") this.go(1)
        else if (event.key.toLowerCase() === "d") this.scribbles.activate(!this.scribbles.active)
        else return false
        return true
    }
}
