/* Files from the person: chosen, or dropped as files and folders; and sending many of them, a few at a time. */
import {Refused, call, connected} from "./api.js"

const AT_ONCE = 3           // the server takes no more

const isPicture = file => file.type.startsWith("image/") || /\.(jpe?g|png|webp|bmp|tiff?|gif)$/i.test(file.name)

/* Pictures among what was dropped; folders are walked. */
export async function dropped(transfer) {
    const entries = [...transfer.items].map(item => item.webkitGetAsEntry?.()).filter(Boolean)
    if (!entries.length) return [...transfer.files].filter(isPicture)
    return (await Promise.all(entries.map(walk))).flat().filter(isPicture)
}

async function walk(entry) {
    if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))]
    const reader = entry.createReader(), found = []
    for (;;) {
        const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
        if (!some.length) return found
        found.push(...(await Promise.all(some.map(walk))).flat())
    }
}

export const pictures = files => [...files].filter(isPicture)

/* Send files to path?name=NAME. progress(done, total). Returns the sentences with which files were refused. */
export async function send(files, path, progress) {
    const left = [...files], refused = []
    let done = 0
    async function sender() {
        for (let file = left.shift(); file; file = left.shift()) {
            const error = await sendOne(file, path)
            if (error) refused.push(`${file.name}: ${error}`)
            progress(++done, files.length)
        }
    }
    await Promise.all(Array.from({length: AT_ONCE}, sender))
    return refused
}

async function sendOne(file, path) {
    for (;;) {
        try {
            await call("POST", `${path}?name=${encodeURIComponent(file.name)}`, file)
            return null
        } catch (error) {
            if (!(error instanceof Refused)) await connected()              // away: try again when it is back
            else if (error.status === 429) await new Promise(resolve => setTimeout(resolve, 500))
            else return error.message
        }
    }
}
