/* The tools on a photograph opened large: a hand that moves it, brush, eraser, and a click that gives a region. With
   mouse, pen, finger, or the keyboard: a cross that the arrows move. */
import {call} from "./api.js"
import {byId, element} from "./element.js"
import {ERASE} from "./scribbles.js"
import {texts} from "./texts.js"
import {Zoom} from "./zoom.js"

export const TOOLS = ["hand", "brush", "eraser", "region"]

const MOST_POINTS = 5000        // of one line; a longer one is cut in two
const SWIPE = 60                // pixels
const LENS = {radius: 84, zoom: 4}
const BACKGROUND = 0

const within = value => Math.min(1, Math.max(0, value))

export class Tools {
    tool = "hand"
    lens = false
    cross = [0.5, 0.5]
    pointers = new Map()        // id: {x, y} of those that are down
    at = null                   // where the pointer is, on the screen; null: not over the photograph
    region = null               // the answer of the server: what a click would give

    /* swiped(move): to the next photograph, or the previous; marked(step): something was drawn */
    constructor(store, scribbles, {swiped, marked}) {
        Object.assign(this, {store, scribbles, swiped, marked})
        this.canvas = byId("strokes")
        this.zoom = new Zoom(byId("stage"), byId("sheet"))
        this.zoom.addEventListener("change", () => this.redraw())
        scribbles.addEventListener("change", () => this.redraw())
        const {canvas} = this
        canvas.onpointerdown = event => this.press(event)
        canvas.onpointermove = event => this.move(event)
        canvas.onpointerup = canvas.onpointercancel = event => this.release(event)
        canvas.onpointerleave = () => this.leave()
        /* A finger draws: the browser makes no fling of it, during which it would take no tap on a button. */
        canvas.addEventListener("touchstart", event => event.preventDefault(), {passive: false})
        canvas.oncontextmenu = event => event.preventDefault()
        canvas.onkeydown = event => this.crossKey(event)
        canvas.onfocus = canvas.onblur = () => this.redraw()
        canvas.addEventListener("wheel", event => {
            event.preventDefault()
            this.zoom.by(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), event.clientX, event.clientY)
        }, {passive: false})
        byId("tool").replaceChildren(...TOOLS.map(tool => element("button", {
            role: "radio", "data-tool": tool, title: texts.toolHints[tool], onclick: () => this.use(tool)},
            texts.tools[tool])))
        byId("tool").onkeydown = event => {                 // as radio buttons do
            const move = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key]
            if (!move) return
            event.preventDefault()
            event.stopPropagation()
            this.use(TOOLS.at((TOOLS.indexOf(this.tool) + move) % TOOLS.length))
            byId("tool").querySelector("[aria-checked=true]").focus()
        }
        byId("brush").oninput = () => this.redraw()
        byId("draw-class").onchange = () => this.forgetRegion()
        byId("lens").onclick = () => this.toggleLens()
        byId("zoom-in").onclick = () => this.zoom.by(1.5)
        byId("zoom-out").onclick = () => this.zoom.by(1 / 1.5)
        byId("zoom-whole").onclick = () => this.zoom.whole()
        this.use("hand")
    }

    use(tool) {
        this.tool = tool
        for (const button of byId("tool").children) {
            const chosen = button.dataset.tool === tool
            button.setAttribute("aria-checked", chosen)
            button.tabIndex = chosen ? 0 : -1
        }
        byId("stage").dataset.tool = tool
        byId("viewer").classList.toggle("drawing", this.draws)
        byId("draw-class").disabled = !["brush", "region"].includes(tool)
        byId("brush").disabled = !["brush", "eraser"].includes(tool)
        this.canvas.tabIndex = this.draws ? 0 : -1
        this.canvas.setAttribute("aria-label", texts.toolSpoken[tool])
        this.forgetRegion()
    }

    get draws() {
        return this.tool !== "hand"
    }

    show() {
        this.pointers.clear()
        this.region = this.at = null
        this.scribbles.current = []
        this.zoom.whole()
    }

    toggleLens() {
        this.lens = !this.lens
        byId("lens").setAttribute("aria-pressed", this.lens)
        this.redraw()
    }

    /* In long sides of the photograph: fine where the slider is low. */
    get radius() {
        return (byId("brush").value / 100) ** 2 / 8
    }

    resize(step) {
        byId("brush").value = Number(byId("brush").value) + 5 * step
        this.redraw()
    }

    label(event) {
        if (this.tool === "eraser") return ERASE
        return event?.button === 2 || event?.buttons & 2 ? BACKGROUND : Number(byId("draw-class").value)
    }

    chooseClass(label) {
        byId("draw-class").value = `${label}`
        this.forgetRegion()
    }

    /* Keys in the viewer; whether this one was for the tools. */
    key(event) {
        const tool = {v: "hand", b: "brush", e: "eraser", r: "region"}[event.key.toLowerCase()]
        const pan = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[event.key]
        if (tool) {
            this.use(tool)
            if (this.draws) this.canvas.focus()
        } else if (event.key === "[" || event.key === "]") this.resize(event.key === "[" ? -1 : 1)
        else if (event.key === "+" || event.key === "=") this.zoom.by(1.5)
        else if (event.key === "-") this.zoom.by(1 / 1.5)
        else if (event.key.toLowerCase() === "l") this.toggleLens()
        else if (event.key.toLowerCase() === "x" && this.draws) this.chooseClass(BACKGROUND)
        else if (pan && !this.zoom.isWhole) this.zoom.pan(...pan)
        else return false
        return true
    }

    /* A digit means the class to draw with, or the whole photograph again; whether it did. */
    digit(digit) {
        if (digit === 0 && !this.zoom.isWhole) this.zoom.whole()
        else if (!this.draws) return false
        else if (digit > 0 && this.store.classes.some(({label}) => label === digit)) this.chooseClass(digit)
        return true
    }

    // --- pointers --------------------------------------------------------------------------------------------------

    press(event) {
        event.preventDefault()
        if (document.activeElement !== this.canvas) byId("viewer-title").focus({preventScroll: true})   // keys act
        this.canvas.setPointerCapture(event.pointerId)
        this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY})
        this.start = this.at = {x: event.clientX, y: event.clientY}
        this.touch = event.pointerType === "touch"
        if (this.pointers.size > 1) {               // two fingers: whatever one of them has begun is no mark
            this.scribbles.current = []
            this.gesture = "pinch"
        } else if (this.tool === "hand" || event.button === 1) {
            this.gesture = "pan"
        } else {
            this.gesture = this.tool
            if (this.tool === "region") this.preview(event)
            else this.begin(event)
        }
        this.redraw()
    }

    move(event) {
        const before = this.pointers.get(event.pointerId)
        this.at = {x: event.clientX, y: event.clientY}
        if (!before) {
            if (this.tool === "region") this.preview(event)
        } else if (this.gesture === "pinch") {
            this.pinch(event)
        } else if (this.gesture === "pan") {
            this.zoom.pan(event.clientX - before.x, event.clientY - before.y)
        } else if (this.gesture === "region") {
            this.preview(event)
        } else if (this.scribbles.current.length) {
            for (const part of event.getCoalescedEvents?.() ?? [event]) this.add(this.place(part.clientX, part.clientY))
        }
        if (before) this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY})
        this.redrawSoon()
    }

    pinch(event) {
        const {clientX: x, clientY: y, pointerId} = event
        const before = this.pointers.get(pointerId)
        const [, other] = [...this.pointers].find(([id]) => id !== pointerId) ?? []
        if (!other) return
        const distance = point => Math.max(1, Math.hypot(point.x - other.x, point.y - other.y))
        this.zoom.by(distance({x, y}) / distance(before), (x + other.x) / 2, (y + other.y) / 2)
        this.zoom.pan((x - before.x) / 2, (y - before.y) / 2)
    }

    release(event) {
        if (!this.pointers.delete(event.pointerId)) return
        const {gesture, start} = this, dx = event.clientX - start.x, dy = event.clientY - start.y
        const cancelled = event.type === "pointercancel"
        if (gesture === "pan" && this.touch && this.zoom.isWhole && Math.abs(dx) > SWIPE && Math.abs(dx) > 2 * Math.abs(dy)) {
            this.swiped(dx > 0 ? -1 : 1)
        } else if (["brush", "eraser"].includes(gesture) && this.scribbles.current.length && !cancelled) {
            this.put(this.scribbles.current)
        } else if (gesture === "region" && !cancelled) {
            this.give(event)
        }
        if (!this.pointers.size) this.gesture = null
        if (this.touch && !this.pointers.size) this.at = null
        this.redraw()
    }

    leave() {
        if (this.pointers.size) return
        this.at = null
        this.forgetRegion()
    }

    /* The place on the photograph of a place on the screen: [x, y] in 0..1. */
    place(clientX, clientY) {
        const {left, top, width, height} = this.zoom.rect
        return [within((clientX - left) / width), within((clientY - top) / height)]
    }

    // --- drawing ---------------------------------------------------------------------------------------------------

    begin(event) {
        const label = this.label(event)
        if (Number.isNaN(label)) return
        this.scribbles.current = [{label, radius: this.radius, points: []}]
        this.add(this.place(event.clientX, event.clientY))
    }

    add(point) {
        const {width, height} = this.zoom.rect, stroke = this.scribbles.current.at(-1), last = stroke.points.at(-1)
        if (last && Math.hypot((point[0] - last[0]) * width, (point[1] - last[1]) * height) < 1.5) return
        if (stroke.points.length < MOST_POINTS) stroke.points.push(point)
        else this.scribbles.current.push({...stroke, points: [last, point]})
    }

    put(strokes) {
        this.marked(this.scribbles.put(strokes))
    }

    crossKey(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return
        const step = (event.shiftKey ? 0.002 : 0.02) / this.zoom.scale
        const moves = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]}
        const move = moves[event.key]
        if (move) {
            this.cross = this.cross.map((value, k) => within(value + move[k]))
            if (this.tool === "region") this.ask(this.cross, "part", this.label())
        } else if (event.key === "Enter" || event.key === " ") {
            if (this.tool === "region") this.giveAt(this.cross, event.shiftKey ? "whole" : "part", this.label())
            else this.put([{label: this.label(), radius: this.radius, points: [this.cross]}])
        } else return
        event.preventDefault()
        event.stopPropagation()                     // the arrows do not go to the next photograph
        this.redraw()
    }

    // --- regions ---------------------------------------------------------------------------------------------------

    preview(event) {
        this.ask(this.place(event.clientX, event.clientY), event.shiftKey ? "whole" : "part", this.label(event))
    }

    forgetRegion() {
        this.region = this.wanted = null
        this.redraw()
    }

    /* What a click there would give: one request at a time, then one for the newest place. */
    async ask(point, kind, label) {
        this.wanted = {point, kind, label, number: this.scribbles.number}
        if (this.asking || this.covers(this.wanted)) return
        this.asking = true
        while (this.wanted && !this.covers(this.wanted)) {
            const wanted = this.wanted
            const found = await this.fetchRegion(wanted).catch(() => null)
            if (!found && this.wanted === wanted) this.wanted = null
            this.region = this.wanted && found
            this.redraw()
        }
        this.asking = false
    }

    async fetchRegion({point: [x, y], kind, label, number}) {
        const found = await call("POST", `/api/photographs/${number}/region`, {x, y, kind, label})
        const shape = new Image()
        shape.src = found.mask
        await shape.decode()
        return {...found, shape, label, number}
    }

    covers({point: [x, y], kind, label, number}) {
        const {region} = this
        if (!region || region.kind !== kind || region.label !== label || region.number !== number) return false
        const {size: [height, width], runs} = region
        const pixel = Math.min(height - 1, Math.floor(y * height)) * width + Math.min(width - 1, Math.floor(x * width))
        for (let k = 0; k < runs.length; k += 2) {
            if (pixel >= runs[k] && pixel < runs[k] + runs[k + 1]) return true
        }
        return false
    }

    give(event) {
        const label = event.button === 2 ? BACKGROUND : Number(byId("draw-class").value)
        this.giveAt(this.place(event.clientX, event.clientY), event.shiftKey ? "whole" : "part", label)
    }

    async giveAt(point, kind, label) {
        const asked = {point, kind, label, number: this.scribbles.number}
        try {
            const region = this.covers(asked) ? this.region : await this.fetchRegion(asked)
            if (asked.number !== this.scribbles.number) return
            const {size, runs, shape} = region
            this.put([{label, size, runs, shape}])
            this.forgetRegion()
        } catch (error) {
            this.store.tell("message", error.message)
        }
    }

    // --- the picture -----------------------------------------------------------------------------------------------

    redrawSoon() {
        this.due ??= requestAnimationFrame(() => {
            this.due = null
            this.redraw()
        })
    }

    redraw() {
        const {canvas, zoom} = this, {width, height, left, top} = canvas.getBoundingClientRect()
        if (!width) return
        const scale = devicePixelRatio, {rect} = zoom
        canvas.width = width * scale
        canvas.height = height * scale
        const context = canvas.getContext("2d")
        context.scale(scale, scale)
        const sheet = {left: rect.left - left, top: rect.top - top, width: rect.width, height: rect.height}
        context.save()
        context.beginPath()
        context.rect(sheet.left, sheet.top, sheet.width, sheet.height)
        context.clip()
        this.scribbles.paint(context, sheet)
        if (this.region && this.tool === "region") {
            context.globalAlpha = 0.6                   // not given yet
            context.drawImage(this.region.shape, sheet.left, sheet.top, sheet.width, sheet.height)
        }
        context.restore()
        const at = this.at && {x: this.at.x - left, y: this.at.y - top}
        if (this.lens && at || this.touch && ["brush", "eraser"].includes(this.gesture) && at) {
            this.drawLens(context, sheet, at, width, scale)
        }
        if (at && ["brush", "eraser"].includes(this.tool)) ring(context, at, this.radius * Math.max(sheet.width, sheet.height))
        if (this.draws && !at && canvas.matches(":focus-visible")) {
            drawCross(context, sheet.left + this.cross[0] * sheet.width, sheet.top + this.cross[1] * sheet.height)
        }
        byId("zoom-whole").textContent = texts.zoom(zoom.scale)
        byId("zoom-whole").disabled = byId("zoom-out").disabled = zoom.isWhole
    }

    /* A magnifier beside the pointer: the photograph, the layer on it, the marks. */
    drawLens(context, sheet, at, width, scale) {
        const {radius, zoom} = LENS
        const x = at.x > width - 2.6 * radius ? at.x - 1.5 * radius : at.x + 1.5 * radius
        const y = at.y < 2.6 * radius ? at.y + 1.5 * radius : at.y - 1.5 * radius
        const large = {left: x - zoom * (at.x - sheet.left), top: y - zoom * (at.y - sheet.top),
                       width: zoom * sheet.width, height: zoom * sheet.height}
        context.save()
        context.beginPath()
        context.arc(x, y, radius, 0, 2 * Math.PI)
        context.fillStyle = "#15181d"
        context.fill()
        context.clip()
        context.imageSmoothingEnabled = false
        for (const image of [byId("picture"), byId("overlay")]) {
            if (image.hidden || !image.complete || !image.naturalWidth) continue
            context.globalAlpha = Number(image.style.opacity || 1)
            context.drawImage(image, large.left, large.top, large.width, large.height)
        }
        context.globalAlpha = 1
        const part = radius / zoom                  // of what is drawn here already: marks
        context.drawImage(this.canvas, (at.x - part) * scale, (at.y - part) * scale, 2 * part * scale, 2 * part * scale,
                          x - radius, y - radius, 2 * radius, 2 * radius)
        context.restore()
        ring(context, {x, y}, radius, 3)
        if (["brush", "eraser"].includes(this.tool)) {
            ring(context, {x, y}, Math.min(radius, zoom * this.radius * Math.max(sheet.width, sheet.height)))
        } else {
            drawCross(context, x, y)
        }
    }
}

function ring(context, {x, y}, radius, line = 1) {
    for (const [colour, wide] of [["#000", line + 2], ["#fff", line]]) {
        context.strokeStyle = colour
        context.lineWidth = wide
        context.beginPath()
        context.arc(x, y, Math.max(2, radius), 0, 2 * Math.PI)
        context.stroke()
    }
}

function drawCross(context, x, y) {
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
