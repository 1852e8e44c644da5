/* Out of the studio: files to take away, the same as command lines, and other photographs to segment. */
import {call} from "./api.js"
import {byId, element, nameElement, say} from "./element.js"
import {chosen, dropped, send} from "./files.js"
import {refusal} from "./messages.js"
import {texts} from "./texts.js"

export class OutPanel {
    refused = 0                 // of the photographs that were sent

    constructor(store) {
        this.store = store
        byId("export").onclick = () => byId("exports").showModal()
        store.addEventListener("status", () => this.showExports())
        store.addEventListener("classes", () => this.showExports())
        store.addEventListener("photographs", () => this.showCommands())
        store.addEventListener("batch", () => this.showBatch())
        byId("batch-choose").onclick = () => byId("batch-files").click()
        byId("batch-folder").onclick = () => byId("batch-directory").click()
        for (const input of [byId("batch-files"), byId("batch-directory")]) {
            input.onchange = () => {
                this.segment(chosen(input.files))
                input.value = ""
            }
        }
        const zone = byId("batch-drop")
        zone.addEventListener("dragover", event => {
            event.preventDefault()
            zone.classList.add("over")
        })
        zone.addEventListener("dragleave", () => zone.classList.remove("over"))
        zone.addEventListener("drop", async event => {
            event.preventDefault()
            event.stopPropagation()             // not added to the folder
            zone.classList.remove("over")
            document.dispatchEvent(new Event("drop-done"))
            this.segment(await dropped(event.dataTransfer))
        })
    }

    // --- files to take away ----------------------------------------------------------------------------------------

    showExports() {
        const {status, counts, exports} = this.store
        if (!status) return
        const {done, total} = status.features
        say(byId("export-missing"), done < total ? texts.exportMissing(total - done) : "")
        const model = Boolean(status.model?.final)
        const ready = JSON.stringify([model, counts.decided > 0, status.report, exports])
        if (this.ready === ready) return
        this.ready = ready
        byId("files").replaceChildren(
            file("/api/export/model.ccnn", ...texts.exportModel, model, texts.afterTraining),
            file("/api/export/tags.csv", ...texts.exportTags, counts.decided > 0, texts.afterTagging),
            file("/api/report.html", ...texts.exportReport, status.report, texts.afterTraining))
        byId("export").disabled = !model
        byId("formats").replaceChildren(...exports.map(
            ({title, file: name, note}) => file(`/api/export/${name}`, title, `${name}: ${note}`, true)))
    }

    showCommands() {
        const shown = JSON.stringify(this.store.commands)
        if (this.shown === shown) return
        this.shown = shown
        byId("commands").replaceChildren(...this.store.commands.map(({what, line}) => {
            const code = element("code", {}, line)
            const button = element("button", {"aria-label": texts.copyLabel(texts.commandFor[what] ?? what)}, texts.copy)
            button.onclick = async () => {
                try {
                    await navigator.clipboard.writeText(line)
                    button.textContent = texts.copied
                } catch {                                       // not allowed: select it, so that Ctrl+C does it
                    getSelection().selectAllChildren(code)
                    button.textContent = texts.copySelected
                }
                setTimeout(() => { button.textContent = texts.copy }, 2500)
            }
            return element("div", {},
                           element("p", {class: "note"}, texts.commandFor[what] ?? what),
                           element("div", {class: "command"}, element("pre", {tabindex: "0"}, code), button))
        }))
    }

    // --- segment another folder ------------------------------------------------------------------------------------

    async segment({pictures, others}) {
        const strange = others.map(name => texts.refused(name, texts.noPicture))
        if (!pictures.length) {
            refusal(texts.refusedFiles(strange.length), strange)
            return say(byId("batch-text"), texts.noPictures)
        }
        this.sending = true
        try {
            const {batch} = await call("POST", "/api/batches", {})
            byId("batch-results").replaceChildren()
            const refused = await send(pictures, `/api/batches/${batch}/photographs`, (done, refused, total) => {
                this.progress(texts.batchSending(done, refused, total), (done + refused) / total)
            })
            this.refused = refused.length
            refusal(texts.refusedFiles(refused.length + strange.length), [...refused, ...strange])
            this.sending = false
            if (refused.length === pictures.length) return this.progress(texts.batchNothing, null)
            this.store.takeBatch(await call("POST", `/api/batches/${batch}/segment`, {}))
        } catch (error) {
            this.progress(error.message, null)
        } finally {
            this.sending = false
        }
    }

    progress(text, share) {
        say(byId("batch-text"), text)
        byId("batch-bar").hidden = share === null
        byId("batch-bar").value = share ?? 0
    }

    showBatch() {
        const {batch, phase, photographs, done, total, error} = this.store.batch
        if (this.sending || phase === "open") return
        if (phase === "failed") this.progress(error, null)
        else if (phase === "done") this.progress(texts.batchDone(total, this.refused), null)
        else this.progress(texts.batchSegmenting(done, total), total ? done / total : 0)
        const zip = byId("batch-zip")
        zip.hidden = phase !== "done"
        zip.href = `/api/batches/${batch}/masks.zip`
        const results = byId("batch-results")
        if (results.dataset.batch !== `${batch}`) results.replaceChildren()
        results.dataset.batch = batch
        const shown = new Set([...results.children].map(figure => figure.dataset.place))
        photographs.forEach(({name, done}, place) => {
            if (!done || phase !== "done" || shown.has(`${place}`)) return
            results.append(element("figure", {"data-place": place},
                element("img", {src: `/api/batches/${batch}/overlay/${place}.jpg`, alt: texts.batchAlt(name),
                                loading: "lazy"}),
                element("figcaption", {}, nameElement(name))))
        })
    }
}

function file(address, name, what, there, when) {
    return element("li", {}, there ? element("a", {href: address, download: true}, name)
        : element("span", {class: "away"}, name), element("span", {class: "note"}, there ? what : when))
}
