/* The page: makes its parts and connects them; keys that work everywhere. */
import {Adding} from "./adding.js"
import {Refused, call, connection} from "./api.js"
import {Changes} from "./changes.js"
import {ClassBar} from "./classbar.js"
import {ClassList} from "./classlist.js"
import {byId, element, say, showOptions} from "./element.js"
import {Grid} from "./grid.js"
import {LearnPanel} from "./learn.js"
import {listing} from "./listing.js"
import {message} from "./messages.js"
import {OutPanel} from "./out.js"
import {Store} from "./store.js"
import {setNone, setUndecided, toggleLarge, toggleTag} from "./tags.js"
import {texts} from "./texts.js"
import {Viewer} from "./viewer.js"

fillTexts()

const store = new Store()
const changes = new Changes(store, (number, which) => viewer.scribbles.step(number, which))
const grid = new Grid(byId("grid"), store)
const classBar = new ClassBar(byId("classbar"), store,
                              {acted: () => grid.acted(), press, name: nameClass, edit: () => classList.open()})
const classList = new ClassList(store)
const viewer = new Viewer(store, {
    press,
    step: move => {
        const place = grid.focus + move
        if (place < 0 || place >= grid.list.length) return null
        grid.goTo(place)
        return grid.focusedNumber()
    },
    marked: (number, step) => changes.marked(number, step),
    closed: () => byId("grid").focus(),
})
const learnPanel = new LearnPanel(store)
new OutPanel(store)
new Adding(announce)

function fillTexts() {
    for (const found of document.querySelectorAll("[data-text]")) found.textContent = texts[found.dataset.text]
    for (const found of document.querySelectorAll("[data-label]")) {
        found.setAttribute("aria-label", texts[found.dataset.label])
    }
    byId("find").placeholder = texts.findShort
    for (const found of document.querySelectorAll("[data-hint]")) found.title = texts[found.dataset.hint]
    byId("keys").querySelector("tbody").replaceChildren(...texts.keyTable.map(
        ([key, what]) => element("tr", {}, element("th", {scope: "row"}, key), element("td", {}, what))))
}

// --- messages ------------------------------------------------------------------------------------------------------

function showConnection() {
    const {state} = connection
    const text = state === "good" ? ""
        : texts[state](changes.waiting() + viewer.scribbles.queue.length, store.kept?.works)
    if (viewer.isOpen && text && byId("connection").hidden) message(text)       // the banner lies behind
    say(byId("connection"), text)
}

store.addEventListener("message", ({detail}) => message(detail))
connection.addEventListener("change", showConnection)
viewer.scribbles.addEventListener("change", showConnection)
viewer.scribbles.addEventListener("refused", ({detail}) => changes.forget(detail))
changes.addEventListener("change", () => {
    showConnection()
    showUndo()
})
addEventListener("beforeunload", event => {
    if (!store.kept?.works && changes.waiting() + viewer.scribbles.queue.length) event.preventDefault()
})

/* Marks of the photograph that is open can be taken back without a history, too: another browser has made it. */
const marksOfOpen = which => viewer.isOpen && viewer.acted()[0]?.[which] > 0

function showUndo() {
    for (const id of ["undo", "draw-undo"]) byId(id).disabled = !changes.done.length && !marksOfOpen("undo")
    for (const id of ["redo", "draw-redo"]) byId(id).disabled = !changes.undone.length && !marksOfOpen("redo")
}

// --- tagging -------------------------------------------------------------------------------------------------------

function press(action, label) {
    const photographs = (viewer.isOpen ? viewer.acted() : grid.acted()).filter(({problem}) => !problem)
    if (!photographs.length) return
    const make = {tag: toggleTag, large: toggleLarge, none: setNone, undecided: setUndecided}[action]
    const what = {none: texts.none, undecided: texts.undecided}[action] ?? store.classOf(label).name
    const changed = changes.make(make(photographs, label))
    if (changed) announce(texts.tagged(what, changed))
}

/* For screen readers and for the eye, below the grid or in the photograph opened large. */
function announce(text) {
    byId(viewer.isOpen ? "viewer-said" : "selected").textContent = text
}

/* which: "undo" or "redo" */
async function move(which) {
    const numbers = []
    try {
        numbers.push(...await changes[which]())
        if (!numbers.length && marksOfOpen(which) && await viewer.scribbles.step(viewer.number, which)) {
            numbers.push(viewer.number)
        }
    } catch (error) {
        return message(error.message)
    }
    if (!numbers.length) return announce(which === "undo" ? texts.nothingToUndo : texts.nothingToRedo)
    if (!viewer.isOpen) grid.goToNumber(numbers[0])
    else if (!numbers.includes(viewer.number)) viewer.show(numbers[0])
    announce(which === "undo" ? texts.undone(numbers.length) : texts.redone(numbers.length))
}

/* A class was typed: make it if it is new, and tag with it. A new one tags only what was selected on purpose. */
async function nameClass(name) {
    byId("grid").focus()
    if (!name) return
    const same = found => found.name.toLowerCase() === name.toLowerCase() && found.label > 0
    try {
        if (!store.classes.some(same)) {
            const before = store.classes.length
            store.takeClasses(await call("POST", "/api/classes", {add: name}))
            message(texts.classAdded(name, before))
            if (!grid.selected.size) return
        }
        press("tag", store.classes.find(same).label)
    } catch (error) {
        message(error.message)
    }
}

// --- the list of photographs ---------------------------------------------------------------------------------------

/* The list stays as it is while you tag, so that nothing jumps; a button offers to bring it up to date. */
function wantedList() {
    return listing(store.present(), store.predictions, {
        filter: byId("filter").value || "all", name: byId("find").value, order: byId("order").value})
}

function list() {
    grid.setList(wantedList())
    showUpdate()
    showWelcome()
}

function showUpdate() {
    const wanted = wantedList(), there = new Set(wanted)
    const misfits = grid.list.filter(number => !there.has(number)).length
    const same = wanted.length === grid.list.length && wanted.every((number, place) => number === grid.list[place])
    byId("update").hidden = same
    byId("update").textContent = misfits ? texts.update(misfits) : texts.updateOrder
}

function showFilters() {
    const photographs = store.present()
    const size = filter => listing(photographs, store.predictions, {filter}).length
    const options = ["all", "undecided", "none", "disputed", "doubtful", "scribbled", "problem"]
        .map(filter => [filter, texts.filters[filter](size(filter)), size(filter)])
        .filter(([filter, , number]) => number || ["all", "undecided", byId("filter").value].includes(filter))
    for (const {label, name} of store.classes.slice(1)) {
        options.push([`class ${label}`, texts.filters.class(size(`class ${label}`), name)])
    }
    showOptions(byId("filter"), options)
    say(byId("tally"), texts.tally(store.counts))
}

function showWelcome() {
    const empty = store.present().length === 0
    byId("tools").hidden = empty
    byId("welcome").hidden = grid.list.length > 0
    byId("grid").classList.toggle("empty", grid.list.length === 0)
    byId("welcome").replaceChildren(...empty
        ? [element("ol", {}, ...texts.steps.map(step => element("li", {}, step))),
           element("div", {class: "row"},
                   element("button", {class: "main", onclick: () => byId("add-files").click()}, texts.addPhotographs),
                   element("button", {onclick: () => byId("add-directory").click()}, texts.addFolder))]
        : [element("p", {}, texts.nothingHere)])
}

let filtersDue = null
function showFiltersSoon() {
    filtersDue ??= setTimeout(() => {
        filtersDue = null
        showFilters()
        showUpdate()
    }, 150)
}

byId("order").replaceChildren(...Object.entries(texts.orders).map(([value, text]) => element("option", {value}, text)))
byId("filter").onchange = byId("find").oninput = byId("update").onclick = list
byId("order").onchange = () => {
    store.kept.write("order", byId("order").value)
    list()
}

/* The order follows what the model says until somebody touches the page, and after a training asked for here. */
let touched = false, listedFor = null           // null: no news yet; "": there was no model
for (const event of ["keydown", "pointerdown"]) addEventListener(event, () => { touched = true }, true)

function followModel() {
    const model = store.status?.model, version = model?.final ? model.version : null
    const isTrained = version && version !== listedFor
    const trainedHere = isTrained && listedFor !== null && learnPanel.ran       // else it was only read from its file
    const isOld = ({number}) => store.predictions.has(number) && store.predictions.get(number).version !== version
    if (isTrained && touched && store.present().some(isOld)) return             // the rest is on its way
    if (isTrained) listedFor = version
    else if (store.status) listedFor ??= ""
    if (!isTrained && touched) return
    const moves = !trainedHere || !touched || learnPanel.asked          // else somebody may be tagging: nothing jumps
    if (isTrained) learnPanel.asked = learnPanel.ran = false
    if (moves) list()
    else showUpdate()
    if (!touched && !viewer.isOpen) grid.goTo(0)        // keys act on what is seen
    if (!trainedHere || viewer.isOpen) return
    const disputed = listing(store.present(), store.predictions, {filter: "disputed"}).length
    message(texts.trained(disputed, moves && byId("order").value))
    if (!moves || grid.selected.size && !grid.fleeting) return
    grid.selected.clear()
    grid.goTo(0)
}

store.addEventListener("photographs", ({detail}) => {
    const cameOrWent = detail?.some(number => {
        const isNew = number >= photographsSeen, {gone} = store.photographs.get(number)
        return isNew || gone && grid.places.has(number)
    })
    photographsSeen = store.photographs.size
    if (cameOrWent) list()
    grid.refresh(detail)
    classBar.show()
    showUndo()
    showFiltersSoon()
})
let photographsSeen = 0             // photographs have the numbers 0, 1, 2, ...

store.addEventListener("classes", () => {
    classBar.build()
    showFilters()
})
store.addEventListener("predictions", () => {
    grid.refresh(null)
    showFiltersSoon()
    followModel()
})
store.addEventListener("status", () => say(byId("problem"), store.status.problem ?? ""))
grid.addEventListener("select", () => {
    classBar.show()
    showUndo()
    const number = grid.focusedNumber()
    const name = number === undefined ? "" : store.photographs.get(number).name
    const text = texts.selected(grid.selected.size) || name
    if (text !== selectionSaid) byId("selected").textContent = selectionSaid = text     // else what was said stays
    byId("open").disabled = number === undefined
})
let selectionSaid = ""
grid.addEventListener("open", ({detail}) => open(detail))

function open(number) {
    grid.goToNumber(number)
    viewer.open(number)
    showUndo()
}

// --- buttons and keys ----------------------------------------------------------------------------------------------

function toggleMasks() {
    if (viewer.isOpen) return viewer.toggleMask()
    grid.masks = !grid.masks
    byId("masks").setAttribute("aria-checked", grid.masks)
    grid.refresh(null)
}

byId("undo").onclick = byId("draw-undo").onclick = () => move("undo")
byId("redo").onclick = byId("draw-redo").onclick = () => move("redo")
byId("help").onclick = () => byId("keys").showModal()
byId("masks").onclick = toggleMasks

/* F, as long as it is held: the masks before the last training. */
function flip(before) {
    if (viewer.isOpen || !before) viewer.flip(before)
    if (grid.before === before || !store.status?.model?.previous || viewer.isOpen && before) return
    grid.before = before
    grid.refresh(null)
}

addEventListener("keyup", event => {
    if (event.key.toLowerCase() === "f") flip(false)
})
addEventListener("blur", () => flip(false))
byId("open").onclick = () => open(grid.focusedNumber())
byId("all").onclick = () => grid.selectAll()
for (const button of document.querySelectorAll("dialog .close")) {
    button.onclick = () => button.closest("dialog").close()
}
for (const button of document.querySelectorAll("nav [data-view]")) {
    button.onclick = () => showView(button.dataset.view)
}

/* On a phone one part is seen at a time. */
function showView(view) {
    document.body.dataset.view = view
    document.querySelector("aside").scrollTop = 0
    for (const button of document.querySelectorAll("nav [data-view]")) {
        button.setAttribute("aria-current", button.dataset.view === view)
    }
}
showView("photographs")

const isWriting = target => target.matches?.("input:not([type=range]):not([type=radio]), textarea, select")

addEventListener("keydown", event => {
    if (event.defaultPrevented || isWriting(event.target) || document.querySelector("dialog[open]:not(#viewer)")) return
    if (event.altKey) return
    if (event.ctrlKey || event.metaKey ? command(event) : keyPressed(event)) event.preventDefault()
    else if (event.target === document.body && !viewer.isOpen) grid.key(event)      // nothing has the focus
})

function command(event) {
    const key = event.key.toLowerCase()
    if (key === "z" && !event.shiftKey) move("undo")
    else if (key === "y" || key === "z") move("redo")
    else return false
    return true
}

function keyPressed(event) {
    const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code)?.[1]
    const key = event.key.toLowerCase()
    if (digit && viewer.isOpen && viewer.tools.digit(Number(digit))) return true
    if (digit === "0" || key === "n") press("none")
    else if (digit) pressDigit(Number(digit), event.shiftKey)
    else if (key === "backspace" || key === "delete") press("undecided")
    else if (key === "m") toggleMasks()
    else if (key === "f") flip(true)
    else if (key === "?") byId("keys").showModal()
    else if (key === "/" && !viewer.isOpen) classBar.input.focus()
    else return viewer.isOpen && !event.target.matches?.("input") && viewer.key(event)
    return true
}

function pressDigit(label, large) {
    if (store.classes.some(found => found.label === label)) press(large || classBar.large ? "large" : "tag", label)
    classBar.shift(false)
}

for (const input of [classBar.input, byId("find")]) {
    input.addEventListener("keydown", event => {
        if (event.key === "Escape") byId("grid").focus()
    })
}

try {
    await store.start()
    byId("order").value = store.kept.read("order", "doubt")
    changes.restore()
    viewer.scribbles.restore()
    list()                                      // in that order; an empty folder says what to do
    say(byId("folder"), store.folder)
    document.title = `${store.folder} – ${texts.title}`
    showUndo()
    byId("grid").focus()
    const named = store.byName().get(new URLSearchParams(location.hash.slice(1)).get("photograph"))
    if (named) open(named.number)
} catch (error) {
    showConnection()
    if (error instanceof Refused && connection.state === "good") message(error.message)
}
