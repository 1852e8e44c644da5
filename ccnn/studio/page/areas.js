/* What the constraints ask of each class's area, and what they get: bars of q and p, and bounds that can be dragged.
   Every move of a bound asks the solver again: one request at a time, then one with the newest bounds. */
import {Refused, call} from "./api.js"
import {byId, element, nameElement, say} from "./element.js"
import {texts} from "./texts.js"

const STEP = 0.01, LEAP = 0.05

export class Areas extends EventTarget {
    moved = {}                  // label: [least, most], where they differ from the tags' bounds
    rows = new Map()            // label: {q, p, numbers, handles: {least, most}}

    /* Event "solve": detail: the explanation with the bounds as they are now. */
    constructor(store) {
        super()
        this.store = store
        byId("areas-reset").onclick = () => {
            this.moved = {}
            this.show(this.number, this.explanation)
            this.solve()
        }
    }

    /* Show a photograph's explanation; null: there is none. Bounds that were dragged stay while it is the same one. */
    show(number, explanation) {
        if (number !== this.number) this.moved = {}
        Object.assign(this, {number, explanation})
        const areas = (explanation?.areas ?? []).filter(({allowed, mask, q}) => allowed || mask > 0.005 || q > 0.005)
        const shown = JSON.stringify([number, areas.map(({label, name, allowed}) => [label, name, allowed])])
        if (shown !== this.shown) {                     // else the rows stay: a bound may be under the pointer
            this.shown = shown
            this.rows.clear()
            byId("areas").replaceChildren(...areas.map(area => this.row(area)))
        }
        const {tags} = this.store.photographs.get(number), {model} = this.store.status
        say(byId("areas-text"), explanation ? texts.areasText : texts.areasNone(tags !== null, model))
        byId("rules").replaceChildren(...(explanation?.rules ?? []).map(({text}) => element("li", {}, text)))
        if (explanation) this.update(explanation)
        else say(byId("areas-status"), "")
        byId("areas-preview").hidden = !Object.keys(this.moved).length
        if (explanation && Object.keys(this.moved).length) this.solve()
    }

    row(area) {
        const {label, name, allowed} = area
        const {colour} = this.store.classOf(label)
        const q = element("i", {class: "q"}), p = element("i", {class: "p"})
        q.style.background = p.style.background = colour
        const track = element("div", {class: "track"}, q, p)
        const numbers = element("span", {class: "numbers"})
        const handles = {}
        if (allowed) {
            for (const which of ["least", "most"]) {
                handles[which] = this.handle(label, name, which, track)
                track.append(handles[which])
            }
        }
        this.rows.set(label, {q, p, numbers, handles, name})
        return element("div", {class: "area"}, nameElement(name), numbers, track)
    }

    handle(label, name, which, track) {
        const handle = element("span", {
            role: "slider", tabindex: "0", class: `handle ${which}`, "aria-valuemin": 0, "aria-valuemax": 100,
            "aria-label": texts.bound(name, which)})
        handle.onkeydown = event => {
            const step = event.shiftKey ? LEAP : STEP
            const move = {ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -LEAP,
                          PageUp: LEAP, Home: -1, End: 1}[event.key]
            if (move === undefined) return
            event.preventDefault()
            event.stopPropagation()                     // the arrows do not go to the next photograph
            this.move(label, which, this.bounds(label)[which === "least" ? 0 : 1] + move)
        }
        handle.onpointerdown = event => {
            event.preventDefault()
            handle.focus()
            handle.setPointerCapture(event.pointerId)
            handle.onpointermove = event => {
                const {left, width} = track.getBoundingClientRect()
                this.move(label, which, (event.clientX - left) / width)
            }
        }
        handle.onlostpointercapture = () => { handle.onpointermove = null }
        return handle
    }

    /* [least, most] of a label as shown: 0 and 1 where there is no bound. */
    bounds(label) {
        const {least, most} = this.explanation.areas.find(area => area.label === label)
        return this.moved[label] ?? [least ?? 0, most ?? 1]
    }

    move(label, which, value) {
        const [least, most] = this.bounds(label)
        const at = Math.round(Math.min(1, Math.max(0, value)) * 100) / 100
        this.moved[label] = which === "least" ? [Math.min(at, most), most] : [least, Math.max(at, least)]
        byId("areas-preview").hidden = false
        this.showHandles(label)
        this.solve()
    }

    showHandles(label) {
        const {handles} = this.rows.get(label)
        this.bounds(label).forEach((bound, k) => {
            const handle = handles[k === 0 ? "least" : "most"]
            if (!handle) return
            handle.style.left = `${100 * bound}%`
            handle.setAttribute("aria-valuenow", Math.round(100 * bound))
            handle.setAttribute("aria-valuetext", texts.percent(bound))
            handle.classList.toggle("free", bound === (k === 0 ? 0 : 1))
        })
    }

    async solve() {
        this.wanted = true
        if (this.asking) return
        this.asking = true
        while (this.wanted) {
            this.wanted = false
            const {number} = this
            const bounds = Object.fromEntries(Object.entries(this.moved).map(
                ([label, [least, most]]) => [label, [least > 0 ? least : null, most < 1 ? most : null]]))
            try {
                const answer = await call("POST", `/api/photographs/${number}/solve`, {bounds})
                if (number === this.number && !this.wanted) this.update(answer)
            } catch (error) {
                if (error instanceof Refused && number === this.number) say(byId("areas-status"), error.message)
            }
        }
        this.asking = false
    }

    update(answer) {
        for (const area of answer.areas) {
            const row = this.rows.get(area.label)
            if (!row) continue
            row.q.style.width = `${100 * area.q}%`
            row.p.style.width = `${100 * area.p}%`
            row.numbers.textContent = texts.areaNumbers(area)
            if (area.allowed) this.showHandles(area.label)
        }
        say(byId("areas-status"), texts.solved(answer))
        this.dispatchEvent(new CustomEvent("solve", {detail: answer}))
    }
}
