/* What must survive a reload, or a restart of the server: kept in the browser, under the identity of the folder. */

export class Kept {
    works = true                // false: the browser keeps nothing, so the page must stay open

    constructor(identity) {
        this.identity = identity
        this.write("works", true)
    }

    read(what, otherwise) {
        try {
            return JSON.parse(localStorage.getItem(this.key(what))) ?? otherwise
        } catch {
            return otherwise
        }
    }

    write(what, value) {
        try {
            localStorage.setItem(this.key(what), JSON.stringify(value))
        } catch {
            this.works = false
        }
    }

    /* alter(value) changes it in place; another page of this folder may have written meanwhile. */
    change(what, otherwise, alter) {
        const value = this.read(what, otherwise)
        alter(value)
        this.write(what, value)
    }

    key(what) {
        return `ccnn ${this.identity} ${what}`
    }
}
