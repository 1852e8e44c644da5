/* Talking to the server, and knowing whether it is there.

   connection.state   "good"; "lost": no answer, we try again; "restarted": the server has a new token. As soon as the
                      address that it printed is opened, in whichever page, this one is let in again: it begins anew,
                      because photographs may have other numbers now. What waits is kept in the browser. */

export class Unreachable extends Error {}

export class Refused extends Error {
    constructor(status, body) {
        super(body.error ?? `status ${status}`)
        this.status = status
        this.body = body
    }
}

class Connection extends EventTarget {
    state = "good"

    is(state) {
        if (state === this.state) return
        this.state = state
        this.dispatchEvent(new Event("change"))
        if (state !== "good" && !this.trying) this.tryLater()
    }

    tryLater() {
        this.trying = true
        setTimeout(() => this.tryAgain(), 2000)
    }

    /* Only this ends what is not good: so there is one attempt every two seconds, whatever else is asked meanwhile. */
    async tryAgain() {
        try {
            await call("GET", "/api/state")
            if (this.state === "restarted") return location.reload()
            this.trying = false
            this.is("good")
        } catch {
            this.tryLater()
        }
    }
}

export const connection = new Connection()

/* body: a File is sent as it is, anything else as JSON. Returns the answer's JSON. */
export async function call(method, path, body) {
    const request = {method}
    if (body instanceof Blob) {
        request.body = body
        request.headers = {"Content-Type": body.type || "image/jpeg"}
    } else if (body !== undefined) {
        request.body = JSON.stringify(body)
        request.headers = {"Content-Type": "application/json"}
    }
    let answer, json
    try {
        answer = await fetch(path, request)
        json = await answer.json()
    } catch (error) {
        connection.is("lost")
        throw new Unreachable(error.message)
    }
    if (answer.status === 503) {
        connection.is("lost")
        throw new Unreachable(json.error)
    }
    if (answer.status === 401) connection.is("restarted")
    if (!answer.ok) throw new Refused(answer.status, json)
    return json
}

/* Wait until the server answers again. */
export function connected() {
    if (connection.state === "good") return Promise.resolve()
    return new Promise(resolve => {
        connection.addEventListener("change", function listen() {
            if (connection.state !== "good") return
            connection.removeEventListener("change", listen)
            resolve()
        })
    })
}

const picture = (number, file, query) => `/api/photographs/${number}/${file}?${new URLSearchParams(query)}`

export const address = {
    thumbnail: photograph => picture(photograph.number, "thumbnail.jpg", {v: photograph.version}),
    picture: photograph => picture(photograph.number, "picture.jpg", {v: photograph.version}),
    /* options: style: "outline"; of: "previous" */
    mask: ({number, scribble, revision}, version, side, options = {}) => picture(number, "mask.png", {
        side, style: "fill", ...options, v: version, ...scribble ? {r: revision} : {}}),
    probability: (number, version, label) => picture(number, "probability.png", {label, side: 1280, v: version}),
    scribbles: photograph => `/api/scribbles/${photograph.number}.png?side=1280&v=${photograph.scribble}`,
}
