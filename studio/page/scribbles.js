/* Points and lines drawn on a photograph: shown at once, then sent; the server's picture of all marks replaces them. */
import {Refused, call, connected} from "./api.js"
import {byId} from "./element.js"
import {texts} from "./texts.js"

export const ERASE = 255

const MOST_POINTS = 5000        // of one line; a longer one is cut in two

export class Scribbles {
    queue = []                  // [{number, strokes}]: waiting for the server, the first under way
    stroke = null               // being drawn
    active = false

    constructor(store) {
        this.store = store
        this.canvas = byId("strokes")
        this.canvas.onpointerdown = event => this.begin(event)
        this.canvas.onpointermove = event => this.draw(event)
        this.canvas.onpointerup = this.canvas.onpointercancel = event => this.end(event)
        byId("draw").onclick = () => this.activate(!this.active)
        byId("draw-undo").onclick = () => this.undo()
        addEventListener("beforeunload", event => {
            if (this.queue.length) event.preventDefault()
        })
        new ResizeObserver(() => this.redraw()).observe(this.canvas)
    }

    activate(active) {
        this.active = active
        byId("draw").setAttribute("aria-checked", active)
        this.canvas.classList.toggle("active", active)
    }

    show(number) {
        this.number = number
        this.stroke = null
        this.redraw()
    }

    // --- drawing ---------------------------------------------------------------------------------------------------

    begin(event) {
        if (!this.active || event.button !== 0) return
        event.preventDefault()
        this.canvas.setPointerCapture(event.pointerId)
        this.stroke = {label: Number(byId("draw-class").value), radius: byId("brush").value / 1000, points: []}
        this.add(event)
    }

    draw(event) {
        if (!this.stroke) return
        for (const part of event.getCoalescedEvents?.() ?? [event]) this.add(part)
    }

    add(event) {
        const {left, top, width, height} = this.canvas.getBoundingClientRect()
        const inside = value => Math.min(1, Math.max(0, value))
        const point = [inside((event.clientX - left) / width), inside((event.clientY - top) / height)]
        const last = this.stroke.points.at(-1)
        if (last && Math.hypot((point[0] - last[0]) * width, (point[1] - last[1]) * height) < 1.5) return
        if (this.stroke.points.length === MOST_POINTS) {
            this.put(this.stroke)
            this.stroke = {...this.stroke, points: [last]}
        }
        this.stroke.points.push(point)
        this.redraw()
    }

    end() {
        if (this.stroke) this.put(this.stroke)
        this.stroke = null
    }

    redraw() {
        const {width, height} = this.canvas.getBoundingClientRect()
        const scale = devicePixelRatio
        this.canvas.width = width * scale
        this.canvas.height = height * scale
        const context = this.canvas.getContext("2d")
        context.scale(scale, scale)
        context.lineCap = context.lineJoin = "round"
        const waiting = this.queue.filter(({number}) => number === this.number).flatMap(({strokes}) => strokes)
        for (const {label, radius, points} of [...waiting, ...this.stroke ? [this.stroke] : []]) {
            const erase = label === ERASE
            context.strokeStyle = context.fillStyle = erase ? "#ffffff99" : this.store.classOf(label).colour
            context.lineWidth = Math.max(2, 2 * radius * Math.max(width, height))
            context.beginPath()
            points.forEach(([x, y]) => context.lineTo(x * width, y * height))
            if (points.length === 1) context.lineTo(points[0][0] * width + 0.01, points[0][1] * height)
            context.stroke()
        }
    }

    // --- sending ---------------------------------------------------------------------------------------------------

    put(stroke) {
        const last = this.queue.at(-1)
        if (this.queue.length > 1 && last.number === this.number) last.strokes.push(stroke)
        else this.queue.push({number: this.number, strokes: [stroke]})
        this.send()
    }

    async send() {
        if (this.sending || !this.queue.length) return
        this.sending = true
        const {number, strokes} = this.queue[0]
        const {scribble: revision} = this.store.photographs.get(number)
        try {
            const {photograph} = await call("POST", `/api/scribbles/${number}`, {revision, strokes})
            this.queue.shift()
            this.store.take([photograph])
        } catch (error) {
            if (error instanceof Refused && error.status !== 401) {
                this.queue.shift()
                if (error.body.photograph) this.store.take([error.body.photograph])
                this.store.tell("message", error.status === 409 ? texts.scribbleConflict : error.message)
            } else {
                await connected()
            }
        }
        this.sending = false
        this.send()
    }

    async undo() {
        const {number} = this
        const {scribble: revision} = this.store.photographs.get(number)
        try {
            const {photograph} = await call("POST", `/api/scribbles/${number}/undo`, {revision})
            this.store.take([photograph])
        } catch (error) {
            this.store.tell("message", error.message)
        }
    }
}
