/* A photograph opened large: with its mask, with what the constraints make of it, with marks drawn by hand. */
import {address, call} from "./api.js"
import {Areas} from "./areas.js"
import {ClassBar} from "./classbar.js"
import {byId, element, say, showOptions} from "./element.js"
import {disputes} from "./listing.js"
import {Scribbles} from "./scribbles.js"
import {texts} from "./texts.js"
import {Tools} from "./tools.js"

const LAYERS = ["mask", "outline", "before", "probability", "p", "nothing"]

export class Viewer {
    number = null
    layer = "mask"
    explanation = null
    flipped = false             // F is held down: the mask before the training

    /* press(action, label): a class key; step(move): the number of the photograph so many places on, or null;
       marked(number, step): something was drawn; closed(number) */
    constructor(store, {press, step, marked, closed}) {
        this.store = store
        this.step = step
        this.dialog = byId("viewer")
        this.areas = new Areas(store)
        this.scribbles = new Scribbles(store)
        this.tools = new Tools(store, this.scribbles, {swiped: move => this.go(move), marked: step => marked(this.number, step)})
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
        byId("overlay").onload = () => this.tools.redraw()              // the magnifier shows it
        this.dialog.addEventListener("close", () => {
            const {number} = this
            this.number = this.askedFor = null
            history.replaceState(null, "", location.pathname)
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
        store.addEventListener("predictions", () => {
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
        this.explanation = this.solved = this.askedFor = null
        const photograph = this.store.photographs.get(number)
        history.replaceState(null, "", `#${new URLSearchParams({photograph: photograph.name})}`)    // for a reload
        byId("viewer-title").firstChild.textContent = photograph.name
        byId("picture").src = address.picture(photograph)
        byId("picture").alt = photograph.name
        byId("sheet").style.backgroundImage = `url("${address.thumbnail(photograph)}")`
        say(byId("viewer-facts"), photograph.problem ?? "")
        byId("viewer-said").textContent = ""
        this.areas.show(number, null)
        this.tools.show()
        this.scribbles.show(number)
        this.showClasses()
        if (photograph.tags?.length) this.tools.chooseClass(photograph.tags[0])
        this.refresh(0)
    }

    fit() {
        const {naturalWidth, naturalHeight} = byId("picture")
        byId("sheet").style.setProperty("--ratio", naturalWidth / naturalHeight)
        this.tools.zoom.show()
    }

    showClasses() {
        this.keys.build()
        const [background, ...others] = this.store.classes
        const options = [...others, background].filter(Boolean).map(({label, name}) => [`${label}`, name])
        for (const select of ["draw-class", "probability"]) showOptions(byId(select), options)
    }

    /* Something about this photograph changed: show it, and ask for the explanation when changes pause. */
    refresh(pause = 250) {
        const photograph = this.store.photographs.get(this.number)
        this.keys.show()
        const disputed = disputes(this.store.predictions.get(this.number), this.store.modelLabels())
        byId("viewer-disputes").replaceChildren(...disputed.map(
            dispute => element("li", {}, texts.dispute(this.store.classOf(dispute.label).name, dispute))))
        this.scribbles.refresh()
        this.showOverlay()
        const asked = JSON.stringify([photograph, this.store.predictions.get(this.number)?.version,
                                         this.store.classes.map(({name}) => name)])
        if (asked === this.askedFor) return
        this.askedFor = asked
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.explain(this.number, asked), pause)
    }

    async explain(number, asked) {
        if (number === null) return
        try {
            const {width, height, explanation} = await call("GET", `/api/photographs/${number}`)
            if (number !== this.number || asked !== this.askedFor) return
            say(byId("viewer-facts"), this.store.photographs.get(number).problem ?? texts.pixels(width, height))
            this.explanation = this.solved = explanation
            this.areas.show(number, explanation)
            this.showOverlay()
        } catch (error) {
            if (number !== this.number || asked !== this.askedFor) return
            this.askedFor = null                                // the next news ask again
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

    flip(flipped) {
        if (this.flipped === flipped) return
        this.flipped = flipped
        if (this.number !== null) this.showOverlay()
    }

    showOverlay() {
        const {number, store} = this, layer = this.flipped ? "before" : this.layer
        const version = store.predictions.get(number)?.version, previous = store.status.model?.previous
        const photograph = store.photographs.get(number)
        byId("layers").querySelector(`[value=${layer}]`).checked = true
        byId("layers").querySelector("[value=before]").parentElement.hidden = !previous
        byId("probability-label").hidden = layer !== "probability"
        const source = {
            mask: () => version && address.mask(photograph, version, 1280),
            outline: () => version && address.mask(photograph, version, 1280, {style: "outline"}),
            before: () => previous && address.mask(photograph, previous, 1280, {of: "previous"}),
            probability: () => version && address.probability(number, version, byId("probability").value),
            p: () => this.solved?.mask,
            nothing: () => null,
        }[layer]()
        const overlay = byId("overlay")
        overlay.hidden = !source
        if (source && overlay.getAttribute("src") !== source) overlay.src = source
        overlay.style.opacity = layer === "outline" ? 1 : byId("opacity").value / 100
        byId("stage").classList.toggle("plain", layer === "nothing")
        this.tools.redraw()
    }

    key(event) {
        if (this.tools.key(event)) return true
        else if (["ArrowLeft", "PageUp"].includes(event.key)) this.go(-1)
        else if (["ArrowRight", "PageDown"].includes(event.key)) this.go(1)
        else return false
        return true
    }
}
