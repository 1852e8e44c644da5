/* The loop: features in the background, Train and Stop, the loss curve, what the model was learned from. */
import {call} from "./api.js"
import {lossChart} from "./chart.js"
import {byId, element, nameElement, say} from "./element.js"
import {texts} from "./texts.js"

export class LearnPanel {
    asked = false               // for the training under way, on this page
    ran = false                 // a training was seen under way

    constructor(store) {
        this.store = store
        byId("train").onclick = () => this.train({})
        byId("check").onclick = () => this.train({check: true})
        byId("stop").onclick = () => {
            this.stopped = true
            this.ask("POST", "/api/stop", {})
        }
        byId("auto").onclick = () => this.ask("PUT", "/api/auto", {auto: !store.status.auto})
        store.addEventListener("status", () => this.show())
        store.addEventListener("classes", () => this.show())
        store.addEventListener("loss", () => this.drawLoss())
    }

    train(options) {
        this.asked = true
        this.ask("POST", "/api/train", options)
    }

    async ask(method, path, body) {
        try {
            this.store.takeStatus(await call(method, path, body))
        } catch (error) {
            this.store.tell("message", error.message)
        }
    }

    show() {
        const {status} = this.store
        if (!status) return
        const {features, training, model} = status, running = training.phase !== "idle"
        this.ran ||= running
        this.showFeatures(features)
        const hadFocus = ["train", "check", "stop"].includes(document.activeElement.id)
        byId("train").hidden = byId("check").hidden = running
        byId("stop").hidden = !running
        byId("stop").disabled = training.phase === "stopping"
        byId("train").disabled = byId("check").disabled = !status.can_train
        byId("train").classList.toggle("quiet", !status.stale)
        if (hadFocus && document.activeElement.hidden) byId(running ? "stop" : "train").focus()
        say(byId("why-not"), running ? "" : status.why_not ? texts.sentence(status.why_not)
            : model && !status.stale ? texts.nothingNew : "")
        say(byId("phase"), running ? texts.phase(training) : "")
        const bar = byId("phase-bar")
        bar.hidden = !running
        if (training.iterations && training.phase === "training") bar.value = training.iteration / training.iterations
        else bar.removeAttribute("value")
        say(byId("train-problem"), training.problem ?? "")
        this.showOutcome(running, training)
        this.showResults(model?.results)
        byId("auto").setAttribute("aria-checked", status.auto)
        say(byId("model"), model ? texts.model(model) : "")
        say(byId("lines"), training.lines.join("\n"))
        byId("lines").parentElement.hidden = !training.lines.length
        this.showSteps()
        this.drawLoss()
    }

    /* What Stop has left, until the next training. */
    showOutcome(running, {phase, iteration, iterations, problem}) {
        if (phase === "training") this.reached = [iteration, iterations]
        if (phase === "stopping") this.stopped = true
        if (running && !this.stopped) say(byId("outcome"), "")
        if (running || !this.stopped) return
        this.stopped = false
        say(byId("outcome"), problem ? "" : texts.stopped(this.reached))
        this.reached = null
    }

    /* What was found on photographs held out, and how it differs from the check before. */
    showResults(results) {
        byId("results").hidden = !results
        const shown = JSON.stringify(results)
        if (!results || shown === this.shownResults) return
        this.shownResults = shown
        const before = new Map((results.before?.classes ?? []).map(one => [one.name, one]))
        const recall = one => one && one.found + one.missed ? one.found / (one.found + one.missed) : null
        const withIou = results.classes.some(({iou}) => iou !== null)
        const row = (name, one, old) => element("tr", {}, element("th", {scope: "row"}, nameElement(name)),
            cell(one.found + one.missed ? texts.foundOf(one.found, one.found + one.missed) : "–",
                 recall(one), recall(old)),
            cell(`${one.false}`, one.false, old?.false, change => `${change}`, -1),
            withIou ? cell(one.iou === null ? "–" : one.iou.toFixed(2), one.iou, old?.iou, change => change.toFixed(2)) : null)
        const head = [texts.resultClass, texts.resultFound, texts.resultFalse, ...withIou ? [texts.resultIou] : []]
        byId("results").replaceChildren(
            element("h3", {}, texts.results), element("table", {},
                element("thead", {}, element("tr", {}, ...head.map(text => element("th", {scope: "col"}, text)))),
                element("tbody", {}, ...results.classes.map(one => row(one.name, one, before.get(one.name))))),
            ...results.mean_iou === null ? [] : [element("p", {class: "note"},
                texts.meanIou(results.mean_iou, results.before?.mean_iou))],
            element("p", {class: "note"}, [results.held_out, results.before ? texts.resultsChange : ""].join(" ").trim()))
    }

    showFeatures({done, total, seconds, problem}) {
        byId("features").hidden = !problem && (total === 0 || done === total)
        byId("features-text").textContent = problem ?? texts.featuresText(done, total, seconds)
        byId("features-text").classList.toggle("wrong", Boolean(problem))
        byId("features-bar").value = total ? done / total : 0
    }

    /* Three sentences that teach, until there is a model. */
    showSteps() {
        const {counts, classes, status} = this.store
        const done = [counts.photographs > 0, classes.length > 1 && counts.decided > 0, false]
        byId("steps").hidden = Boolean(status.model) || !done[0]        // an empty grid says them itself
        byId("steps").replaceChildren(...texts.steps.map(
            (step, k) => element("li", {class: done[k] ? "done" : ""}, step)))
    }

    drawLoss() {
        const {loss} = this.store
        byId("loss").replaceChildren(...loss.points.length > 1 ? [lossChart(loss)] : [])
    }
}

/* A cell of the table, with what has changed: green is better, whatever the sign. */
function cell(text, now, before, format = change => texts.points(change), better = 1) {
    const change = now === null || before == null ? 0 : now - before
    const mark = change ? element("span", {class: change * better > 0 ? "better" : "worse"},
                                  ` ${change > 0 ? "+" : "−"}${format(Math.abs(change))}`) : null
    return element("td", {}, text, mark)
}
