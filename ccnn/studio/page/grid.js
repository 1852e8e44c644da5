/* The grid: a listbox of photographs of which only those near the window exist as elements.

   list       numbers of the photographs, in order
   focus      place in the list that the arrows move
   selected   numbers; keys act on them, and on the focus if there are none

   Events: "select" when focus or selection changed, "open" (detail: number). */
import {Cell, cellId} from "./cell.js"
import {element} from "./element.js"

const GAP = 12              // pixels, as in style.css
const CHIPS = 34            // height below the picture
const AHEAD = 2             // rows beyond the window
const DRAG = 6              // pixels: less is a click

export class Grid extends EventTarget {
    list = []
    places = new Map()          // number: place in the list
    focus = 0
    anchor = 0                  // where a range begins
    selected = new Set()
    fleeting = false            // the selection came from a plain click: an arrow drops it
    masks = true
    before = false              // masks are those before the last training
    cells = new Map()

    constructor(box, store) {
        super()
        this.box = box
        this.store = store
        this.floor = element("div", {class: "floor", role: "presentation"})
        this.band = element("div", {class: "band", hidden: true})
        box.append(this.floor)
        this.floor.append(this.band)
        box.addEventListener("scroll", () => this.later(), {passive: true})
        new ResizeObserver(() => this.resize()).observe(box)
        box.addEventListener("keydown", event => this.key(event))
        box.addEventListener("pointerdown", event => this.press(event))
        box.addEventListener("click", event => this.click(event))
        box.addEventListener("dblclick", event => {
            const cell = event.target.closest(".cell")
            if (cell) this.tell("open", Number(cell.dataset.number))
        })
    }

    // --- what is shown ---------------------------------------------------------------------------------------------

    setList(list) {
        const number = this.list[this.focus]
        this.list = list
        this.places = new Map(list.map((number, place) => [number, place]))
        this.selected = new Set([...this.selected].filter(n => this.places.has(n)))
        this.focus = this.anchor = this.places.get(number) ?? Math.max(0, Math.min(this.focus, list.length - 1))
        this.resize()
        this.refresh(null)          // places and their number
        this.changed()
    }

    resize() {
        const width = this.box.clientWidth
        if (!width) return
        const top = this.columns ? Math.floor(this.box.scrollTop / this.rowHeight) * this.columns : 0
        const columns = Math.max(2, Math.floor((width + GAP) / (190 + GAP)))
        const moved = this.columns !== columns
        this.columns = columns
        this.cellWidth = Math.floor((width - GAP * (columns + 1)) / columns)
        this.frameHeight = Math.round(this.cellWidth * 3 / 4)
        this.rowHeight = this.frameHeight + CHIPS + GAP
        this.floor.style.height = `${Math.ceil(this.list.length / columns) * this.rowHeight + GAP}px`
        if (moved && top) this.box.scrollTop = Math.floor(top / columns) * this.rowHeight
        for (const cell of this.cells.values()) cell.place = null           // to be put anew
        this.draw()
    }

    later() {
        this.due ??= requestAnimationFrame(() => {
            this.due = null
            this.draw()
        })
    }

    /* Make the cells near the window, remove the others. */
    draw() {
        if (!this.columns) return
        const first = Math.floor(this.box.scrollTop / this.rowHeight) - AHEAD
        const last = Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.rowHeight) + AHEAD
        const from = Math.max(0, first * this.columns), to = Math.min(this.list.length, last * this.columns)
        const near = new Set(this.list.slice(from, to))
        for (const [number, cell] of this.cells) {
            if (near.has(number)) continue
            cell.remove()
            this.cells.delete(number)
        }
        for (let place = from; place < to; place++) {
            const number = this.list[place]
            let cell = this.cells.get(number)
            if (!cell) {
                cell = new Cell(this.store, number)
                this.cells.set(number, cell)
                this.fill(cell, place)
                cell.root.classList.toggle("focused", place === this.focus)
                this.floor.append(cell.root)
            }
            if (cell.place !== place) this.put(cell, place)
        }
        this.point()
    }

    put(cell, place) {
        cell.place = place
        const [x, y] = this.corner(place)
        const {style} = cell.root
        style.transform = `translate(${x}px, ${y}px)`
        style.width = `${this.cellWidth}px`
        cell.frame.style.height = `${this.frameHeight}px`
        cell.root.setAttribute("aria-posinset", place + 1)
    }

    corner(place) {
        return [GAP + place % this.columns * (this.cellWidth + GAP),
                GAP + Math.floor(place / this.columns) * this.rowHeight]
    }

    fill(cell, place) {
        cell.fill({place, places: this.list.length, selected: this.selected.has(cell.number),
                   masks: this.masks, before: this.before})
    }

    /* Photographs changed (null: all): show them as they are now. */
    refresh(numbers) {
        const changed = numbers && new Set(numbers)
        for (const [number, cell] of this.cells) {
            if (this.places.has(number) && (changed?.has(number) ?? true)) this.fill(cell, this.places.get(number))
        }
    }

    /* Show selection and focus. */
    mark() {
        const focused = this.list[this.focus]
        for (const [number, {root}] of this.cells) {
            root.setAttribute("aria-selected", this.selected.has(number))
            root.classList.toggle("focused", number === focused)
        }
        this.point()
    }

    /* Tell a screen reader which photograph has the focus, if it is there. */
    point() {
        const focused = this.list[this.focus]
        const id = this.cells.has(focused) ? cellId(focused) : ""
        if ((this.box.getAttribute("aria-activedescendant") ?? "") !== id) {
            this.box.setAttribute("aria-activedescendant", id)
        }
    }

    // --- focus and selection ---------------------------------------------------------------------------------------

    tell(what, detail) {
        this.dispatchEvent(new CustomEvent(what, {detail}))
    }

    changed() {
        this.mark()
        this.tell("select")
    }

    focusedNumber() {
        return this.list[this.focus]
    }

    /* The photographs that a key acts on. */
    acted() {
        const numbers = this.selected.size ? [...this.selected] : this.list.slice(this.focus, this.focus + 1)
        return numbers.map(number => this.store.photographs.get(number))
    }

    goTo(place) {
        if (!this.list.length) return
        this.focus = Math.max(0, Math.min(place, this.list.length - 1))
        const top = this.corner(this.focus)[1] - GAP
        const {scrollTop, clientHeight} = this.box
        if (top < scrollTop) this.box.scrollTop = top
        else if (top + this.rowHeight + GAP > scrollTop + clientHeight) {
            this.box.scrollTop = top + this.rowHeight + GAP - clientHeight
        }
        this.draw()
        this.changed()
    }

    goToNumber(number) {
        const place = this.places.get(number)
        if (place !== undefined) this.goTo(place)
    }

    selectRange(from, to) {
        for (let place = Math.min(from, to); place <= Math.max(from, to); place++) this.selected.add(this.list[place])
    }

    selectAll() {
        this.selected = new Set(this.list)
        this.fleeting = false
        this.changed()
    }

    clear() {
        this.selected.clear()
        this.changed()
    }

    toggle(place) {
        const number = this.list[place]
        if (!this.selected.delete(number)) this.selected.add(number)
        this.focus = this.anchor = place
        this.fleeting = false
        this.changed()
    }

    key(event) {
        if (event.altKey) return
        const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight)) * this.columns
        const move = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -page,
                      PageDown: page, Home: -this.list.length, End: this.list.length}[event.key]
        if (move !== undefined) this.step(move, event.shiftKey)
        else if (event.key === " ") this.toggle(this.focus)
        else if (event.key === "Enter" && this.list.length) this.tell("open", this.focusedNumber())
        else if (event.key === "Escape") this.clear()
        else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) this.selectAll()
        else return
        event.preventDefault()
    }

    step(move, extend) {
        if (this.fleeting && !extend) this.selected.clear()
        const beyond = this.focus + move < 0 || this.focus + move >= this.list.length
        if (beyond && Math.abs(move) === this.columns) return           // up from the first row, down from the last
        if (extend && this.fleeting) this.fleeting = false
        this.goTo(this.focus + move)
        if (extend) this.selectRange(this.anchor, this.focus)
        else this.anchor = this.focus
        this.changed()
    }

    click(event) {
        const cell = event.target.closest(".cell")
        if (this.dragged) {                             // the end of a drag is no click
            this.dragged = false
            return
        }
        if (!cell) return
        const place = this.places.get(Number(cell.dataset.number))
        if (event.shiftKey) {
            if (!event.ctrlKey) this.selected.clear()
            this.selectRange(this.anchor, place)
            this.focus = place
            this.fleeting = false
            this.changed()
        } else if (event.ctrlKey || event.metaKey || this.touched) {
            this.toggle(place)
        } else {
            this.selected = new Set([this.list[place]])
            this.focus = this.anchor = place
            this.fleeting = true
            this.changed()
        }
    }

    // --- dragging a band around photographs, with the mouse ---------------------------------------------------------

    press(event) {
        this.touched = event.pointerType === "touch"
        this.dragged = false
        if (this.touched || event.button !== 0 || event.target === this.box) return
        const start = this.spot(event)
        const before = event.ctrlKey || event.shiftKey ? new Set(this.selected) : new Set()
        const move = event => {
            const end = this.spot(event)
            if (!this.dragged && Math.hypot(end.x - start.x, end.y - start.y) < DRAG) return
            this.dragged = true
            this.stretch(start, end, before)
        }
        const release = () => {
            this.band.hidden = true
            removeEventListener("pointermove", move)
            if (this.dragged) setTimeout(() => { this.dragged = false })
        }
        addEventListener("pointermove", move)
        addEventListener("pointerup", release, {once: true})
    }

    spot(event) {
        const {left, top} = this.floor.getBoundingClientRect()
        return {x: event.clientX - left, y: event.clientY - top}
    }

    stretch(start, end, before) {
        const left = Math.min(start.x, end.x), right = Math.max(start.x, end.x)
        const top = Math.min(start.y, end.y), bottom = Math.max(start.y, end.y)
        Object.assign(this.band.style, {left: `${left}px`, top: `${top}px`, width: `${right - left}px`,
                                        height: `${bottom - top}px`})
        this.band.hidden = false
        this.selected = new Set(before)
        const firstRow = Math.max(0, Math.floor(top / this.rowHeight)), lastRow = Math.floor(bottom / this.rowHeight)
        for (let place = firstRow * this.columns; place < (lastRow + 1) * this.columns; place++) {
            if (place >= this.list.length) break
            const [x, y] = this.corner(place)
            const inside = x < right && x + this.cellWidth > left && y < bottom && y + this.rowHeight - GAP > top
            if (!inside) continue
            this.selected.add(this.list[place])
            this.focus = this.anchor = place
        }
        this.fleeting = false
        this.changed()
    }
}
