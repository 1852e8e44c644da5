/* Files from the person: chosen, or dropped as files and folders; and sending many of them, a few at a time. */
import {Refused, call, connected} from "./api.js"
import {texts} from "./texts.js"

const AT_ONCE = 3           // the server takes no more

const isPicture = ({type, name}) => type.startsWith("image/") || /\.(jpe?g|png|webp|bmp|tiff?|gif|hei[cf]|avif)$/i.test(name)

/* Files of the system that nobody has meant. */
const isNoise = ({name}) => name.startsWith(".") || /^(thumbs\.db|desktop\.ini)$/i.test(name)

/* What was dropped, folders with all that is in them: {pictures: [{file, name}], others: [name]} */
export async function dropped(transfer) {
    const entries = [...transfer.items].map(item => item.webkitGetAsEntry?.()).filter(Boolean)
    if (!entries.length) return sorted([...transfer.files].map(file => ({file, path: file.name})))
    return sorted((await Promise.all(entries.map(walk))).flat())
}

/* The same of what was chosen. */
export const chosen = files => sorted([...files].map(file => ({file, path: file.webkitRelativePath || file.name})))

async function walk(entry) {
    if (entry.isFile) {
        const file = await new Promise((resolve, reject) => entry.file(resolve, reject))
        return [{file, path: entry.fullPath.replace(/^\//, "")}]
    }
    const reader = entry.createReader(), found = []
    for (;;) {
        const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
        if (!some.length) return found
        found.push(...(await Promise.all(some.map(walk))).flat())
    }
}

/* A photograph of holiday/day1/a.jpg comes as day1-a.jpg: the studio's folder has no folders. */
function sorted(found) {
    const name = path => path.split("/").slice(path.includes("/") ? 1 : 0).join("-")
    const seen = found.filter(({file}) => !isNoise(file)).sort((a, b) => name(a.path) < name(b.path) ? -1 : 1)
    return {pictures: seen.filter(({file}) => isPicture(file)).map(({file, path}) => ({file, name: name(path)})),
            others: seen.filter(({file}) => !isPicture(file)).map(({path}) => name(path))}
}

/* Send [{file, name}] to path?name=NAME. progress(done, refused, total). Returns the sentences with which files were
   refused, in the order of the names. */
export async function send(pictures, path, progress) {
    const left = [...pictures], refused = []
    let done = 0
    async function sender() {
        for (let picture = left.shift(); picture; picture = left.shift()) {
            const error = await sendOne(picture, path)
            if (error) refused.push(texts.refused(picture.name, error))
            else done++
            progress(done, refused.length, pictures.length)
        }
    }
    await Promise.all(Array.from({length: AT_ONCE}, sender))
    return refused.sort()
}

async function sendOne({file, name}, path) {
    for (;;) {
        try {
            await call("POST", `${path}?name=${encodeURIComponent(name)}`, file)
            return null
        } catch (error) {
            if (!(error instanceof Refused)) await connected()              // away: try again when it is back
            else if (error.status === 429) await new Promise(resolve => setTimeout(resolve, 500))
            else return error.message.startsWith(`${name}: `) ? error.message.slice(name.length + 2) : error.message
        }
    }
}
