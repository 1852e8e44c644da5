/* Zoom and pan: which part of the photograph the stage shows. */

const MOST = 24             // times its size when all of it is seen
const KEEP = 60             // pixels of it that stay in the stage

export class Zoom extends EventTarget {
    scale = 1
    x = 0                       // pixels by which its middle is away from the middle of the stage
    y = 0

    /* Event "change" when the stage shows another part. */
    constructor(stage, sheet) {
        super()
        this.stage = stage
        this.sheet = sheet
        new ResizeObserver(() => this.show()).observe(stage)
    }

    get isWhole() {
        return this.scale === 1
    }

    /* Where the photograph lies on the screen. */
    get rect() {
        return this.sheet.getBoundingClientRect()
    }

    /* Zoom by a factor; the point of the screen stays where it is, without one the middle. */
    by(factor, clientX, clientY) {
        const stage = this.stage.getBoundingClientRect()
        const scale = Math.min(MOST, Math.max(1, this.scale * factor)), k = scale / this.scale
        const px = (clientX ?? stage.left + stage.width / 2) - (stage.left + stage.width / 2)
        const py = (clientY ?? stage.top + stage.height / 2) - (stage.top + stage.height / 2)
        this.scale = scale < 1.02 ? 1 : scale
        this.x = px - (px - this.x) * k
        this.y = py - (py - this.y) * k
        this.show()
    }

    pan(dx, dy) {
        this.x += dx
        this.y += dy
        this.show()
    }

    whole() {
        this.scale = 1
        this.show()
    }

    show() {
        if (this.isWhole) this.x = this.y = 0
        const {offsetWidth, offsetHeight} = this.sheet, {clientWidth, clientHeight} = this.stage
        const most = (side, room) => Math.max(0, (side * this.scale + room) / 2 - KEEP)
        const mx = most(offsetWidth, clientWidth), my = most(offsetHeight, clientHeight)
        this.x = Math.min(mx, Math.max(-mx, this.x))
        this.y = Math.min(my, Math.max(-my, this.y))
        this.sheet.style.transform = this.isWhole ? "" : `translate(${this.x}px, ${this.y}px) scale(${this.scale})`
        this.sheet.classList.toggle("pixels", this.scale >= 4)
        this.dispatchEvent(new Event("change"))
    }
}
