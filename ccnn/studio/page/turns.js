/* Pictures that nobody has asked for by hand are fetched two at a time: what a person asks for is not behind them. */
const AT_ONCE = 2

const waiting = []
let running = 0

/* Call begin(done) in its turn; it calls done() once, when the picture is there or will not come. */
export function inTurn(begin) {
    waiting.push(begin)
    next()
}

function next() {
    while (running < AT_ONCE && waiting.length) {
        running += 1
        waiting.shift()(() => {
            running -= 1
            next()
        })
    }
}
