/* The loss over the steps of a training, as SVG: a line per round. */
import {texts} from "./texts.js"

const WIDTH = 300, HEIGHT = 132, LEFT = 34, BASE = 108, TOP = 8

function svg(tag, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
    made.textContent = text
    return made
}

/* The least round number that is not below value; its halves are round, too. */
export function nice(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)))
    return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find(k => k * power >= value * (1 - 1e-9)) * power
}

/* points: [[step, loss]]; rounds: the step at which each begins; steps: of all rounds together. */
export function lossChart({points, rounds, steps}) {
    const xMost = Math.max(steps, points.at(-1)[0], 1), yMost = nice(Math.max(...points.map(([, y]) => y)))
    const fx = x => LEFT + (WIDTH - LEFT - 8) * x / xMost
    const fy = y => BASE - (BASE - TOP) * Math.min(y, yMost) / yMost
    const label = texts.lossSpoken(points[0][1], points.at(-1)[1], points.at(-1)[0])
    const chart = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart"})
    if (rounds.length > 1) chart.append(svg("title", {}, texts.roundsHint))
    for (const y of [0, yMost / 2, yMost]) {
        chart.append(svg("line", {x1: LEFT, x2: WIDTH - 8, y1: fy(y), y2: fy(y), class: "grid"}),
                     svg("text", {x: LEFT - 5, y: fy(y) + 4, "text-anchor": "end", class: "tick"}, +y.toPrecision(3)))
    }
    chart.append(svg("text", {x: LEFT, y: HEIGHT - 6, class: "tick"}, texts.lossAxis),
                 svg("text", {x: WIDTH - 8, y: HEIGHT - 6, "text-anchor": "end", class: "tick"}, xMost),
                 ...rounds.slice(1).flatMap(begin => [
                     svg("line", {x1: fx(begin), x2: fx(begin), y1: TOP, y2: BASE, class: "round"}),
                     svg("text", {x: fx(begin) + 4, y: TOP + 8, class: "tick"}, texts.secondRound)]),
                 ...rounds.map((begin, k) => svg("polyline", {points: points
                     .filter(([x]) => x >= begin && x < (rounds[k + 1] ?? Infinity))
                     .map(([x, y]) => `${fx(x).toFixed(1)},${fy(y).toFixed(1)}`).join(" ")})))
    const [x, y] = points.at(-1)
    chart.append(svg("circle", {cx: fx(x), cy: fy(y), r: 3}))
    return chart
}
