/* Marks on a photograph, which correct its mask: shown as they are drawn, then sent; the server's picture of all marks
   takes their place when it has come. What waits is kept in the browser until the server has it. */
import {Refused, address, call, connected} from "./api.js"
import {sorted} from "./tags.js"

export const ERASE = 255

export class Scribbles extends EventTarget {
    queue = []                  // [{id, number, strokes}]: waiting for the server, the first under way
    landed = []                 // [{number, revision, strokes}]: the server has them, their picture is on its way
    picture = null              // of the marks that the server has
    current = []                // strokes being drawn
    ids = new Set()             // of all that this page has or had in its queue

    /* Events: "change": another picture is to be drawn; "refused" (detail: id): the server did not take strokes. */
    constructor(store) {
        super()
        this.store = store
    }

    show(number) {
        this.number = number
        this.current = []
        this.refresh(true)
    }

    /* Fetch the picture of the marks if the server has others than are shown. */
    refresh(anew = false) {
        const photograph = this.store.photographs.get(this.number)
        const source = photograph.scribble ? address.scribbles(photograph) : null
        if (source === this.source && !anew) return
        this.source = source
        const use = picture => {
            if (this.source !== source) return
            this.picture = picture
            this.landed = this.landed.filter(({number, revision}) => number === this.number
                && revision > photograph.revision)
            this.changed()
        }
        if (!source) return use(null)
        if (anew) this.picture = null
        const picture = new Image()
        picture.onload = () => use(picture)
        picture.onerror = () => { if (this.source === source) this.source = undefined }      // the next news try again
        picture.src = source
        this.changed()
    }

    changed() {
        this.dispatchEvent(new Event("change"))
    }

    /* Draw all marks of the photograph, which lies at left, top, width, height of the canvas. */
    paint(context, {left, top, width, height}) {
        context.imageSmoothingEnabled = false
        if (this.picture) context.drawImage(this.picture, left, top, width, height)
        const mine = ({number}) => number === this.number
        for (const stroke of [...this.landed.filter(mine), ...this.queue.filter(mine), {strokes: this.current}]
            .flatMap(({strokes}) => strokes)) this.paintStroke(context, stroke, left, top, width, height)
    }

    paintStroke(context, {label, radius, points, shape}, left, top, width, height) {
        context.globalCompositeOperation = label === ERASE ? "destination-out" : "source-over"
        if (shape) {
            context.drawImage(shape, left, top, width, height)
        } else if (points) {
            context.strokeStyle = label === ERASE ? "#000" : this.store.classOf(label).colour
            context.lineCap = context.lineJoin = "round"
            context.lineWidth = Math.max(2, 2 * radius * Math.max(width, height))
            context.beginPath()
            points.forEach(([x, y]) => context.lineTo(left + x * width, top + y * height))
            if (points.length === 1) context.lineTo(left + points[0][0] * width + 0.01, top + points[0][1] * height)
            context.stroke()
        }
        context.globalCompositeOperation = "source-over"
    }

    // --- sending ---------------------------------------------------------------------------------------------------

    /* strokes: one step of undo. Returns their id, and the tags before if these strokes bring one: undo takes it back. */
    put(strokes) {
        const id = crypto.randomUUID(), before = this.tagsBefore(strokes)
        this.queue.push({id, number: this.number, strokes})
        this.current = []
        this.keepWaiting()
        this.changed()
        this.send()
        return {id, before}
    }

    tagsBefore(strokes) {
        const drawn = strokes => strokes.map(({label}) => label).filter(label => label > 0 && label !== ERASE)
        const {tags, large} = this.store.photographs.get(this.number)
        const waiting = this.queue.filter(({number}) => number === this.number).flatMap(({strokes}) => drawn(strokes))
        const there = sorted([...tags ?? [], ...waiting])
        if (drawn(strokes).every(label => there.includes(label))) return null
        return {number: this.number, tags: there.length ? there : tags, large}
    }

    /* Strokes that an earlier page has left. */
    restore() {
        const {kept, classes} = this.store, byName = this.store.byName()
        const label = name => name === null ? ERASE : classes.find(c => c.name === name)?.label
        for (const {id, name, strokes} of kept.read("marks", [])) {
            this.ids.add(id)
            const number = byName.get(name)?.number
            const numbered = strokes.map(stroke => ({...stroke, label: label(stroke.label)}))
            if (number === undefined || numbered.some(stroke => stroke.label === undefined)) continue
            this.queue.push({id, number, strokes: numbered})
        }
        this.keepWaiting()
        this.send()
    }

    keepWaiting() {
        const {kept, classes, photographs} = this.store
        const name = label => label === ERASE ? null : classes.find(c => c.label === label)?.name
        for (const {id} of this.queue) this.ids.add(id)
        if (!this.ids.size) return
        kept.change("marks", [], all => {
            const others = all.filter(({id}) => !this.ids.has(id))
            all.splice(0, all.length, ...others, ...this.queue.map(({id, number, strokes}) => ({
                id, name: photographs.get(number).name,
                strokes: strokes.map(({shape, ...stroke}) => ({...stroke, label: name(stroke.label)}))})))
        })
    }

    async send() {
        if (this.sending || !this.queue.length) return
        this.sending = true
        const {number, strokes} = this.queue[0], {identity} = this.store
        const {scribble: revision, name} = this.store.photographs.get(number)
        const sent = strokes.map(({shape, ...stroke}) => stroke)
        try {
            const {photograph} = await call("POST", `/api/scribbles/${number}`, {revision, strokes: sent, identity, name})
            this.landed.push({...this.queue.shift(), revision: photograph.revision})
            this.store.take([photograph])
        } catch (error) {
            if (error instanceof Refused && error.status === 409 && error.body.photograph?.scribble !== revision
                && error.body.photograph) {
                this.store.take([error.body.photograph])        // marked elsewhere, too: both hold
            } else if (error instanceof Refused && error.status !== 401) {
                const {id} = this.queue.shift()
                this.dispatchEvent(new CustomEvent("refused", {detail: id}))
                this.store.tell("message", error.message)
                this.changed()
            } else {
                await connected()
            }
        }
        this.keepWaiting()
        this.sending = false
        if (!this.queue.length) this.dispatchEvent(new Event("idle"))
        this.send()
    }

    async idle() {
        while (this.queue.length) await new Promise(done => this.addEventListener("idle", done, {once: true}))
    }

    /* Undo or redo the last mark of a photograph. Whether there was one; it throws where the server does not answer. */
    async step(number, which) {
        await this.idle()
        for (;;) {
            const photograph = this.store.photographs.get(number), {scribble: revision} = photograph
            if (!photograph[which]) return false
            try {
                const answer = await call("POST", `/api/scribbles/${number}/${which}`, {revision})
                this.store.take([answer.photograph])
                return true
            } catch (error) {
                const now = error instanceof Refused && error.status === 409 && error.body.photograph
                if (!now || now.scribble === revision) throw error
                this.store.take([now])              // its file has changed, and the news are on their way
                if (this.store.photographs.get(number).scribble === revision) throw error
            }
        }
    }
}
