/* Photographs come into the folder: chosen, dropped on the page, a whole folder of them, or from the camera. */
import {byId} from "./element.js"
import {chosen, dropped, send} from "./files.js"
import {message, refusal} from "./messages.js"
import {texts} from "./texts.js"

export class Adding {
    /* announce(text): where the page says what goes on */
    constructor(announce) {
        this.announce = announce
        byId("add").onclick = () => byId("add-files").click()
        for (const input of [byId("add-files"), byId("add-directory")]) {
            input.onchange = () => {
                this.add(chosen(input.files))
                input.value = ""
            }
        }
        const brings = event => event.dataTransfer?.types.includes("Files")
        addEventListener("dragover", event => {
            if (!brings(event)) return
            event.preventDefault()
            byId("dropping").hidden = Boolean(event.target.closest?.("#batch-drop"))
        })
        addEventListener("dragleave", event => {
            if (!event.relatedTarget) byId("dropping").hidden = true
        })
        document.addEventListener("drop-done", () => { byId("dropping").hidden = true })
        addEventListener("drop", async event => {
            if (!brings(event)) return
            event.preventDefault()
            byId("dropping").hidden = true
            this.add(await dropped(event.dataTransfer))
        })
    }

    async add({pictures, others}) {
        const strange = others.map(name => texts.refused(name, texts.noPicture))
        if (!pictures.length && !strange.length) return message(texts.noPictures)
        const refused = await send(pictures, "/api/photographs",
                                   (done, refused, total) => this.announce(texts.adding(done, refused, total)))
        refusal(texts.refusedFiles(refused.length + strange.length), [...refused, ...strange])
        const total = pictures.length + strange.length
        this.announce(texts.added(pictures.length - refused.length, refused.length + strange.length, total))
    }
}
