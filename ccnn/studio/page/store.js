/* What the page knows of the folder. The server's events keep it up to date; the page's parts listen to these events:

   photographs   detail: the numbers that changed, null: all
   classes  status  predictions  loss  batch  message (detail: a sentence) */
import {call, connection} from "./api.js"
import {Kept} from "./kept.js"

const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b)

const DEFAULTS = {tags: null, large: [], scribble: 0, undo: 0, redo: 0, problem: null, gone: false}

export class Store extends EventTarget {
    server = null
    revision = -1
    folder = ""
    identity = null                 // of the folder
    kept = null                     // Kept, of this folder
    classes = []
    counts = {photographs: 0, decided: 0, undecided: 0, none: 0}
    status = null
    commands = []
    exports = []                    // [{name, title, file, note}]: formats of the masks to take away
    photographs = new Map()         // number: photograph, as shown
    predictions = new Map()             // number: {version, areas, doubt, disputes, rank, changed}
    loss = {run: null, steps: 0, rounds: [], points: []}
    batch = null
    refreshing = null               // a promise, while everything is asked for anew
    again = false                   // and it is to be asked once more
    heard = []                      // what events said meanwhile: done afterwards, because it may be newer
    isBusy = () => false            // number: a change of ours is under way; set by Changes

    async start() {
        await this.refresh()
        this.listen()
        connection.addEventListener("change", () => {
            if (connection.state === "good") this.refresh().catch(() => {})
        })
    }

    /* Ask for everything that may have changed. Resolves when that is shown. */
    refresh() {
        this.again = true
        this.refreshing ??= this.askUntilDone().finally(() => { this.refreshing = null })
        return this.refreshing
    }

    async askUntilDone() {
        while (this.again) {
            this.again = false
            try {
                await this.ask()
            } finally {
                this.heard.splice(0).forEach(react => react())
            }
        }
    }

    async ask() {
        const [state, predictions, loss] = await Promise.all(
            ["state", "predictions", "loss"].map(what => call("GET", `/api/${what}`)))
        const isNew = state.server !== this.server || state.revision !== this.revision
        const list = isNew ? await call("GET", "/api/photographs") : null
        if (this.server && this.server !== state.server) return location.reload()
        const {server, folder, identity, classes, counts, commands, exports} = state
        Object.assign(this, {server, folder, identity, classes, counts, commands, exports, loss})
        this.kept ??= new Kept(identity)
        const changed = list ? this.keep(list.photographs) : []
        if (list) this.revision = Math.min(state.revision, list.revision)
        this.tell("classes")
        this.takeStatus(state.status)
        this.takePredictions(predictions)
        this.tell("predictions")
        this.tell("loss")
        this.tell("photographs", changed)
    }

    /* Events keep what was asked for up to date. With each connection everything is asked for once: what happened
       before it, nobody has told. */
    listen() {
        const source = new EventSource("/api/events")
        const on = (name, react) => source.addEventListener(name, event => {
            const told = () => react(JSON.parse(event.data))
            if (this.refreshing) this.heard.push(told)
            else told()
        })
        source.addEventListener("hello", () => this.refresh().catch(() => {}))
        on("status", status => this.takeStatus(status))
        on("changed", ({revision, photographs, all}) => {
            if (all) return this.refresh().catch(() => {})
            this.revision = Math.max(this.revision, revision)
            this.take(photographs)
        })
        on("classes", news => this.takeClasses(news))
        on("loss", ({run, steps, rounds, from, points}) => {
            this.loss = {run, steps, rounds, points: [...this.loss.points.slice(0, from), ...points]}
            this.tell("loss")
        })
        on("predictions", news => {
            this.takePredictions(news)
            this.tell("predictions")
            this.tell("photographs", news.predictions.map(({number}) => number))
        })
        on("batch", batch => this.takeBatch(batch))
        source.addEventListener("message", event => this.tell("message", JSON.parse(event.data).text))
        source.onerror = () => {
            if (source.readyState === EventSource.CLOSED) {     // refused: find out why, then begin again
                setTimeout(() => call("GET", "/api/state").then(() => this.listen(), () => this.listenLater()), 1000)
            } else {
                connection.is("lost")
            }
        }
    }

    listenLater() {
        connection.addEventListener("change", () => this.listen(), {once: true})
    }

    tell(what, detail) {
        this.dispatchEvent(new CustomEvent(what, {detail}))
    }

    /* Photographs as the server has them. One that we are about to change is left alone: its answer will come. */
    take(photographs) {
        this.keep(photographs)
        this.tell("photographs", photographs.map(photograph => photograph.number))
    }

    /* Returns the numbers of those that differ from before. News that come late, after newer ones, are none. */
    keep(photographs) {
        const changed = []
        for (const photograph of photographs) {
            const {number, revision} = photograph, before = this.photographs.get(number)
            if (this.isBusy(number, photograph) || before?.revision > revision) continue
            const now = {...DEFAULTS, ...photograph}
            this.photographs.set(number, now)
            if (!isSame(before, now)) changed.push(number)
        }
        return changed
    }

    takeStatus(status) {
        if (status.serial < this.status?.serial) return         // it comes late
        const version = this.status?.model?.version
        this.status = status
        this.tell("status")
        if (status.model?.version !== version) this.tell("predictions")
    }

    takeClasses({classes, counts}) {
        const names = JSON.stringify(this.classes.map(c => c.name))
        Object.assign(this, {classes, counts})
        this.tell("classes")
        if (names !== JSON.stringify(classes.map(c => c.name))) this.tell("photographs", null)
    }

    takePredictions({version, predictions}) {
        for (const {number, ...prediction} of predictions) this.predictions.set(number, {version, ...prediction})
    }

    takeBatch(batch) {
        this.batch = batch
        this.tell("batch")
    }

    /* Photographs that are there, as in the folder. */
    present() {
        return [...this.photographs.values()].filter(photograph => !photograph.gone)
    }

    /* {name: photograph} */
    byName() {
        return new Map(this.present().map(photograph => [photograph.name, photograph]))
    }

    classOf(label) {
        return this.classes.find(c => c.label === label) ?? {label, name: `${label}`, colour: "#808080"}
    }

    /* The labels, as they are now, of the classes that the model knows; -1: no longer there. */
    modelLabels() {
        const names = this.status?.model?.classes ?? []
        return names.map(name => this.classes.find(c => c.name === name)?.label ?? -1)
    }
}
