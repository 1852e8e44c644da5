/* Points and lines drawn on a photograph: shown at once, then sent; the server's picture of all marks replaces them.
   With the keyboard: a cross that the arrows move, and Enter marks a point. */
import {Refused, call, connected} from "./api.js"
import {byId} from "./element.js"
import {texts} from "./texts.js"

export const ERASE = 255

const MOST_POINTS = 5000        // of one line; a longer one is cut in two

const within = value => Math.min(1, Math.max(0, value))

export class Scribbles {
    queue = []                  // [{number, strokes}]: waiting for the server, the first under way
    stroke = null               // being drawn
    active = false
    cross = [0.5, 0.5]

    constructor(store) {
        this.store = store
        this.canvas = byId("strokes")
        this.canvas.onpointerdown = event => this.begin(event)
        this.canvas.onpointermove = event => this.draw(event)
        this.canvas.onpointerup = this.canvas.onpointercancel = event => this.end(event)
        this.canvas.onkeydown = event => this.key(event)
        this.canvas.onfocus = this.canvas.onblur = () => this.redraw()
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
        if (active) this.canvas.tabIndex = 0
        else this.canvas.removeAttribute("tabindex")
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
        this.stroke = this.newStroke([])
        this.add(event)
    }

    newStroke(points) {
        return {label: Number(byId("draw-class").value), radius: byId("brush").value / 1000, points}
    }

    key(event) {
        const step = event.shiftKey ? 0.002 : 0.02
        const moves = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]}
        const move = moves[event.key]
        if (move) this.cross = this.cross.map((value, k) => within(value + move[k]))
        else if (event.key === "Enter" || event.key === " ") this.put(this.newStroke([this.cross]))
        else return
        event.preventDefault()
        event.stopPropagation()                 // the arrows do not go to the next photograph
        this.redraw()
    }

    draw(event) {
        if (!this.stroke) return
        for (const part of event.getCoalescedEvents?.() ?? [event]) this.add(part)
    }

    add(event) {
        const {left, top, width, height} = this.canvas.getBoundingClientRect()
        const point = [within((event.clientX - left) / width), within((event.clientY - top) / height)]
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
        if (this.active && this.canvas.matches(":focus-visible")) this.drawCross(context, width, height)
    }

    drawCross(context, width, height) {
        const x = this.cross[0] * width, y = this.cross[1] * height
        for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
            context.strokeStyle = colour
            context.lineWidth = line
            context.beginPath()
            context.moveTo(x - 12, y)
            context.lineTo(x + 12, y)
            context.moveTo(x, y - 12)
            context.lineTo(x, y + 12)
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
