/* Changes of tags: shown at once, sent one request after the other, kept in the browser until the server has them.
   Undo and redo, of tags and of marks. */
import {Refused, call, connection} from "./api.js"
import {named, numbered, sameTags} from "./tags.js"
import {texts} from "./texts.js"

const MOST_UNDONE = 2000        // photographs in all steps that can be undone after a reload

export class Changes extends EventTarget {
    wanted = new Map()          // number: {number, tags, large} to be sent
    flying = new Map()          // the same, in the request under way
    saved = new Map()           // number: what the server has, of all these
    overtaken = new Map()       // number: photograph that an event brought meanwhile
    written = new Set()         // names of the photographs of which we keep a change in the browser
    done = []                   // [{tags: [{before, after}]} or {marks: number, id, before}], newest last
    undone = []
    moving = Promise.resolve()      // the step that is being undone or redone

    /* stepMarks(number, "undo" or "redo"): whether the marks of a photograph are now as before, or as after */
    constructor(store, stepMarks) {
        super()
        this.store = store
        this.stepMarks = stepMarks
        store.isBusy = (number, photograph) => {
            const busy = this.flying.has(number) || this.wanted.has(number)
            if (busy) this.overtaken.set(number, photograph)
            return busy
        }
        connection.addEventListener("change", () => this.send())
    }

    /* What an earlier page has left: changes that the server does not have yet, and what can be undone. */
    restore() {
        const {kept, classes} = this.store, byName = this.store.byName()
        const decode = entry => {
            if (entry.marks !== undefined) {
                const number = byName.get(entry.marks)?.number
                return {marks: number, id: entry.id, before: entry.before && numbered(entry.before, number, classes)}
            }
            return {tags: entry.tags.map(({name, before, after}) => {
                const number = byName.get(name)?.number
                return {before: numbered(before, number, classes), after: numbered(after, number, classes)}
            }).filter(({before, after}) => before && after)}
        }
        const there = ({marks, tags}) => marks !== undefined || tags?.length
        for (const which of ["done", "undone"]) this[which] = kept.read(which, []).map(decode).filter(there)
        const waiting = kept.read("tags", {}), states = [], lost = []
        for (const [name, {before, after}] of Object.entries(waiting)) {
            const photograph = byName.get(name)
            if (!photograph) continue
            const [seen, wish] = [before, after].map(state => numbered(state, photograph.number, classes))
            this.written.add(name)
            if (!wish || sameTags(photograph, wish)) continue
            if (seen && sameTags(photograph, seen)) states.push(wish)
            else lost.push(name)
        }
        if (states.length) this.want(states)
        else this.keepWaiting()
        if (lost.length) this.store.tell("message", texts.conflict(lost))
        this.dispatchEvent(new Event("change"))
    }

    waiting() {
        return new Set([...this.wanted.keys(), ...this.flying.keys()]).size
    }

    /* Change photographs, as a step that can be undone. Returns how many differ from before. */
    make(states) {
        const steps = states.map(after => ({before: this.shown(after.number), after}))
            .filter(({before, after}) => !sameTags(before, after))
        if (!steps.length) return 0
        this.note({tags: steps})
        this.want(steps.map(step => step.after))
        return steps.length
    }

    /* Something was marked in a photograph: a step that can be undone, too. before: its tags, if the marks bring one. */
    marked(number, {id, before}) {
        this.note({marks: number, id, before})
    }

    /* The server did not take these marks: there is nothing to undo. */
    forget(id) {
        this.done = this.done.filter(entry => entry.id !== id)
        this.keepHistory()
    }

    note(entry) {
        this.done.push(entry)
        this.undone = []
        this.keepHistory()
    }

    undo() {
        return this.inTurn(() => this.move(this.done, this.undone, "undo"))
    }

    redo() {
        return this.inTurn(() => this.move(this.undone, this.done, "redo"))
    }

    /* One step after the other, however fast the keys are pressed. */
    inTurn(step) {
        return this.moving = this.moving.then(step, step)
    }

    /* The photographs whose state this changed; none: there is nothing to undo. */
    async move(from, to, which) {
        const entry = from.pop()
        if (!entry) return []
        try {
            if (entry.marks !== undefined && !await this.stepMarks(entry.marks, which)) return this.move(from, to, which)
        } catch (error) {
            from.push(entry)
            throw error
        }
        to.push(entry)
        this.keepHistory()
        if (entry.marks !== undefined) {
            if (which === "undo" && entry.before) this.want([entry.before])
            return [entry.marks]
        }
        this.want(entry.tags.map(step => which === "undo" ? step.before : step.after))
        return entry.tags.map(step => step.after.number)
    }

    keepHistory() {
        const {kept, classes, photographs} = this.store
        const name = number => photographs.get(number).name
        let room = MOST_UNDONE
        const encode = entries => entries.filter(({tags}) => (room -= tags?.length ?? 1) >= 0).map(
            ({marks, id, before, tags}) => tags
                ? {tags: tags.map(({before, after}) => ({name: name(after.number), before: named(before, classes),
                                                         after: named(after, classes)}))}
                : {marks: name(marks), id, before: before && named(before, classes)})
        for (const which of ["done", "undone"]) kept.write(which, encode(this[which].toReversed()).toReversed())
        this.dispatchEvent(new Event("change"))
    }

    shown(number) {
        const {tags, large} = this.store.photographs.get(number)
        return {number, tags, large}
    }

    want(states) {
        for (const state of states) {
            if (!this.saved.has(state.number)) this.saved.set(state.number, this.shown(state.number))
            Object.assign(this.store.photographs.get(state.number), state)
            this.wanted.set(state.number, state)
        }
        this.keepWaiting()
        this.store.tell("photographs", states.map(state => state.number))
        this.dispatchEvent(new Event("change"))
        this.send()
    }

    /* What waits, by the names of photographs and classes: after a restart they have other numbers. */
    keepWaiting() {
        const {kept, classes, photographs} = this.store
        const waiting = new Map([...this.flying, ...this.wanted])
        if (!waiting.size && !this.written.size) return
        kept.change("tags", {}, all => {
            for (const name of this.written) delete all[name]
            this.written.clear()
            for (const [number, after] of waiting) {
                const {name} = photographs.get(number)
                all[name] = {before: named(this.saved.get(number), classes), after: named(after, classes)}
                this.written.add(name)
            }
        })
    }

    async send() {
        if (this.flying.size || !this.wanted.size || connection.state !== "good") return
        this.flying = this.wanted
        this.wanted = new Map()
        const sent = this.flying
        try {
            const changes = [...sent.values()].map(
                state => ({...state, revision: this.store.photographs.get(state.number).revision}))
            this.land(sent, await call("PUT", "/api/tags", {changes, identity: this.store.identity}))
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
        for (const number of sent.keys()) this.saved.delete(number)
        for (const state of again) {
            this.saved.set(state.number, this.shown(state.number))
            Object.assign(this.store.photographs.get(state.number), state)
            this.wanted.set(state.number, state)
        }
        this.keepWaiting()
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
        this.saved.clear()
        this.overtaken.clear()
        this.keepWaiting()
        this.store.tell("message", error.message)
        await this.store.refresh().catch(() => {})
    }
}
