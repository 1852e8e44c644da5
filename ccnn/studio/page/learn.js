/* The loop: features in the background, Train and Stop, the loss curve, what the model was learned from. */
import {call} from "./api.js"
import {lossChart} from "./chart.js"
import {byId, element, say} from "./element.js"
import {texts} from "./texts.js"

export class LearnPanel {
    constructor(store) {
        this.store = store
        byId("train").onclick = () => this.ask("POST", "/api/train", {})
        byId("check").onclick = () => this.ask("POST", "/api/train", {check: true})
        byId("stop").onclick = () => this.ask("POST", "/api/stop", {})
        byId("auto").onclick = () => this.ask("PUT", "/api/auto", {auto: !store.status.auto})
        store.addEventListener("status", () => this.show())
        store.addEventListener("classes", () => this.show())
        store.addEventListener("loss", () => this.drawLoss())
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
        byId("auto").setAttribute("aria-checked", status.auto)
        say(byId("model"), model ? texts.model(model) : "")
        say(byId("lines"), training.lines.join("\n"))
        byId("lines").parentElement.hidden = !training.lines.length
        this.showSteps()
        this.drawLoss()
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
