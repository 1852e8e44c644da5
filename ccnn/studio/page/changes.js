/* Changes of tags: shown at once, sent one request after the other, kept until the server has them; undo and redo. */
import {Refused, call, connection} from "./api.js"
import {sameTags} from "./tags.js"
import {texts} from "./texts.js"

export class Changes extends EventTarget {
    wanted = new Map()          // number: {number, tags, large} to be sent
    flying = new Map()          // the same, in the request under way
    overtaken = new Map()       // number: photograph that an event brought meanwhile
    done = []                   // [[{before, after}]], newest last
    undone = []

    constructor(store) {
        super()
        this.store = store
        store.isBusy = (number, photograph) => {
            const busy = this.flying.has(number) || this.wanted.has(number)
            if (busy) this.overtaken.set(number, photograph)
            return busy
        }
        connection.addEventListener("change", () => this.send())
        addEventListener("beforeunload", event => {
            if (this.waiting()) event.preventDefault()
        })
    }

    waiting() {
        return new Set([...this.wanted.keys(), ...this.flying.keys()]).size
    }

    /* Change photographs, as a step that can be undone. Returns how many differ from before. */
    make(states) {
        const steps = states.map(after => ({before: this.shown(after.number), after}))
            .filter(({before, after}) => !sameTags(before, after))
        if (!steps.length) return 0
        this.done.push(steps)
        this.undone = []
        this.want(steps.map(step => step.after))
        return steps.length
    }

    undo() {
        return this.move(this.done, this.undone, "before")
    }

    redo() {
        return this.move(this.undone, this.done, "after")
    }

    /* The photographs whose state this changed; none: there is nothing to undo. */
    move(from, to, which) {
        const steps = from.pop()
        if (!steps) return []
        to.push(steps)
        this.want(steps.map(step => step[which]))
        return steps.map(step => step.after.number)
    }

    shown(number) {
        const {tags, large} = this.store.photographs.get(number)
        return {number, tags, large}
    }

    want(states) {
        for (const state of states) {
            Object.assign(this.store.photographs.get(state.number), state)
            this.wanted.set(state.number, state)
        }
        this.store.tell("photographs", states.map(state => state.number))
        this.dispatchEvent(new Event("change"))
        this.send()
    }

    async send() {
        if (this.flying.size || !this.wanted.size || connection.state !== "good") return
        this.flying = this.wanted
        this.wanted = new Map()
        const sent = this.flying
        try {
            const changes = [...sent.values()].map(
                state => ({...state, revision: this.store.photographs.get(state.number).revision}))
            this.land(sent, await call("PUT", "/api/tags", {changes}))
        } catch (error) {
            if (error instanceof Refused && error.status === 409) this.land(sent, error.body)
            else if (error instanceof Refused && error.status !== 401) await this.giveUp(error)
            else this.keep(sent)
        }
        this.dispatchEvent(new Event("change"))
        this.send()
    }

    /* The server answered: what it has is shown, but for what we want to change again. */
    land(sent, {photographs, conflicts = [], refused = []}) {
        this.flying = new Map()
        const overruled = new Set(conflicts)
        const lost = photographs.filter(photograph => overruled.has(photograph.number)
            && !sameTags({large: [], ...photograph}, sent.get(photograph.number)))
        for (const {number} of [...lost, ...refused]) this.wanted.delete(number)
        const again = photographs.map(({number}) => this.wanted.get(number)).filter(Boolean)
        for (const {number} of again) this.wanted.delete(number)
        const newest = photographs.map(photograph => {
            const later = this.overtaken.get(photograph.number)
            this.overtaken.delete(photograph.number)
            return later?.revision > photograph.revision ? later : photograph
        })
        this.store.keep(newest)
        for (const state of again) {
            Object.assign(this.store.photographs.get(state.number), state)
            this.wanted.set(state.number, state)
        }
        this.store.tell("photographs", newest.map(photograph => photograph.number))
        if (lost.length) this.store.tell("message", texts.conflict(lost.map(photograph => photograph.name)))
        for (const {number, error} of refused) {
            this.store.tell("message", texts.refused(this.store.photographs.get(number).name, error))
        }
    }

    /* Nobody answered: everything waits, newer wishes first. */
    keep(sent) {
        this.wanted = new Map([...sent, ...this.wanted])
        this.flying = new Map()
    }

    /* The whole request was refused: show what the server has. */
    async giveUp(error) {
        this.flying = new Map()
        this.wanted = new Map()
        this.overtaken.clear()
        this.store.tell("message", error.message)
        await this.store.refresh().catch(() => {})
    }
}
