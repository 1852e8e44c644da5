/* What the page knows of the folder. The server's events keep it up to date; the page's parts listen to these events:

   photographs   detail: the numbers that changed, null: all
   classes  status  answers  loss  batch  message (detail: a sentence) */
import {call, connection} from "./api.js"

const DEFAULTS = {tags: null, large: [], scribble: 0, problem: null, gone: false}

export class Store extends EventTarget {
    server = null
    revision = -1
    folder = ""
    classes = []
    counts = {photographs: 0, decided: 0, undecided: 0, none: 0}
    status = null
    commands = []
    photographs = new Map()         // number: photograph, as shown
    answers = new Map()             // number: {version, areas, doubt}
    loss = {run: null, points: []}
    batch = null
    isBusy = () => false            // number: a change of ours is under way; set by Changes

    async start() {
        await this.refresh()
        this.listen()
        connection.addEventListener("change", () => {
            if (connection.state === "good") this.refresh().catch(() => {})
        })
    }

    async refresh() {
        const [state, list, answers, loss] = await Promise.all(
            ["state", "photographs", "answers", "loss"].map(what => call("GET", `/api/${what}`)))
        const {server, folder, classes, counts, status, commands} = state
        Object.assign(this, {server, folder, classes, counts, status, commands, loss,
                             revision: Math.min(state.revision, list.revision)})
        this.keep(list.photographs)
        this.answers = new Map()
        this.takeAnswers(answers)
        for (const what of ["classes", "status", "answers", "loss"]) this.tell(what)
        this.tell("photographs", null)
    }

    listen() {
        const source = new EventSource("/api/events")
        const on = (name, react) => source.addEventListener(name, event => react(JSON.parse(event.data)))
        on("hello", ({server, revision}) => {
            if (server !== this.server || revision > this.revision) this.refresh().catch(() => {})
        })
        on("status", status => this.takeStatus(status))
        on("changed", ({revision, photographs, all}) => {
            if (all) return this.refresh().catch(() => {})
            this.revision = Math.max(this.revision, revision)
            this.take(photographs)
        })
        on("classes", news => this.takeClasses(news))
        on("loss", ({run, points}) => {
            if (run !== this.loss.run) this.loss = {run, points: []}
            const last = this.loss.points.at(-1)?.[0] ?? -1
            this.loss.points.push(...points.filter(([iteration]) => iteration > last))
            this.tell("loss")
        })
        on("answers", news => {
            this.takeAnswers(news)
            this.tell("answers")
            this.tell("photographs", news.answers.map(answer => answer.number))
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

    keep(photographs) {
        for (const photograph of photographs) {
            if (this.isBusy(photograph.number, photograph)) continue
            this.photographs.set(photograph.number, {...DEFAULTS, ...photograph})
        }
    }

    takeStatus(status) {
        const version = this.status?.model?.version
        this.status = status
        this.tell("status")
        if (status.model?.version !== version) this.tell("answers")
    }

    takeClasses({revision, classes, counts}) {
        const names = JSON.stringify(this.classes.map(c => c.name))
        Object.assign(this, {revision: Math.max(this.revision, revision), classes, counts})
        this.tell("classes")
        if (names !== JSON.stringify(classes.map(c => c.name))) this.tell("photographs", null)
    }

    takeAnswers({version, answers}) {
        for (const {number, areas, doubt} of answers) this.answers.set(number, {version, areas, doubt})
    }

    takeBatch(batch) {
        this.batch = batch
        this.tell("batch")
    }

    /* Photographs that are there, as in the folder. */
    present() {
        return [...this.photographs.values()].filter(photograph => !photograph.gone)
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
