/* The page: makes its parts and connects them; keys that work everywhere. */
import {Refused, call, connection} from "./api.js"
import {Changes} from "./changes.js"
import {ClassBar} from "./classbar.js"
import {byId, element, say, swatch} from "./element.js"
import {dropped, pictures, send} from "./files.js"
import {Grid} from "./grid.js"
import {LearnPanel} from "./learn.js"
import {listing} from "./listing.js"
import {OutPanel} from "./out.js"
import {Store} from "./store.js"
import {setNone, setUndecided, toggleLarge, toggleTag} from "./tags.js"
import {texts} from "./texts.js"
import {Viewer} from "./viewer.js"

fillTexts()

const store = new Store()
const changes = new Changes(store)
const grid = new Grid(byId("grid"), store)
const classBar = new ClassBar(byId("classbar"), store,
                              {acted: () => grid.acted(), press, name: nameClass, edit: editClasses})
const viewer = new Viewer(store, {
    press,
    step: move => {
        const place = grid.focus + move
        if (place < 0 || place >= grid.list.length) return null
        grid.goTo(place)
        return grid.focusedNumber()
    },
    closed: () => byId("grid").focus(),
})
new LearnPanel(store)
new OutPanel(store)

function fillTexts() {
    for (const found of document.querySelectorAll("[data-text]")) found.textContent = texts[found.dataset.text]
    for (const found of document.querySelectorAll("[data-label]")) {
        found.setAttribute("aria-label", texts[found.dataset.label])
    }
    for (const found of document.querySelectorAll("[data-hint]")) found.title = texts[found.dataset.hint]
    byId("keys").querySelector("tbody").replaceChildren(...texts.keyTable.map(
        ([key, what]) => element("tr", {}, element("th", {scope: "row"}, key), element("td", {}, what))))
}

// --- messages ------------------------------------------------------------------------------------------------------

function message(text) {
    const shown = element("p", {}, text)
    const seen = viewer.isOpen ? byId("viewer") : document.body         // what lies behind a dialog is not seen
    seen.append(byId("messages"))
    byId("messages").append(shown)
    while (byId("messages").children.length > 4) byId("messages").firstChild.remove()
    setTimeout(() => shown.remove(), Math.max(4000, 70 * text.length))
}

function showConnection() {
    const {state} = connection
    const text = state === "good" ? "" : texts[state](changes.waiting() + viewer.scribbles.queue.length)
    if (viewer.isOpen && text && byId("connection").hidden) message(text)       // the banner lies behind
    say(byId("connection"), text)
}

store.addEventListener("message", ({detail}) => message(detail))
connection.addEventListener("change", showConnection)
changes.addEventListener("change", () => {
    showConnection()
    byId("undo").disabled = !changes.done.length
    byId("redo").disabled = !changes.undone.length
})

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

function undo() {
    const numbers = changes.undo()
    if (numbers.length) reveal(numbers, texts.undone)
    else announce(texts.nothingToUndo)
}

function redo() {
    const numbers = changes.redo()
    if (numbers.length) reveal(numbers, texts.redone)
    else announce(texts.nothingToRedo)
}

function reveal(numbers, text) {
    if (!viewer.isOpen) grid.goToNumber(numbers[0])
    announce(text(numbers.length))
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

function editClasses() {
    const dialog = byId("classes")
    showClassList()
    if (!dialog.open) dialog.showModal()
}

function showClassList() {
    byId("class-problem").textContent = ""
    const classes = store.classes.filter(({label}) => label > 0)
    byId("class-list").replaceChildren(...classes.map(({name, colour, photographs}) => {
        const input = element("input", {type: "text", value: name, maxlength: 60, "aria-label": texts.className(name)})
        const form = element("form", {onsubmit: event => {
            event.preventDefault()
            changeClass({rename: name, to: input.value.trim()})
        }}, swatch(colour), input, element("span", {class: "note"}, texts.classCount(photographs)),
           element("button", {"aria-label": texts.renameLabel(name)}, texts.rename),
           element("button", {type: "button", "aria-label": texts.removeLabel(name),
                              onclick: () => changeClass({remove: name})}, texts.remove))
        return element("li", {}, form)
    }))
    if (!classes.length) byId("class-list").replaceChildren(element("li", {}, texts.noClasses))
}

async function changeClass(change) {
    try {
        store.takeClasses(await call("POST", "/api/classes", change))
        showClassList()
    } catch (error) {
        byId("class-problem").textContent = error.message
    }
}

// --- the list of photographs ---------------------------------------------------------------------------------------

/* The list stays as it is while you tag, so that nothing jumps; a button offers to bring it up to date. */
function wantedList() {
    return listing(store.present(), store.answers, store.modelLabels(), byId("filter").value || "all",
                   byId("order").value)
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
    const photographs = store.present(), labels = store.modelLabels()
    const size = filter => listing(photographs, store.answers, labels, filter, "folder").length
    const options = ["all", "undecided", "none", "disputed", "scribbled", "problem"]
        .map(filter => [filter, texts.filters[filter](size(filter)), size(filter)])
        .filter(([filter, , number]) => number || ["all", "undecided", byId("filter").value].includes(filter))
    for (const {label, name} of store.classes.slice(1)) {
        options.push([`class ${label}`, texts.filters.class(size(`class ${label}`), name)])
    }
    showOptions(byId("filter"), options)
    say(byId("tally"), texts.tally(store.counts))
}

/* options: [[value, text]]. Elements stay where they can: the list may be open just now. */
function showOptions(select, options) {
    const same = select.options.length === options.length
        && options.every(([value], place) => select.options[place].value === value)
    if (same) {
        options.forEach(([, text], place) => {
            if (select.options[place].textContent !== text) select.options[place].textContent = text
        })
        return
    }
    const chosen = select.value
    select.replaceChildren(...options.map(([value, text]) => element("option", {value}, text)))
    select.value = chosen
    if (select.selectedIndex < 0) select.selectedIndex = 0
}

function showWelcome() {
    const empty = store.present().length === 0
    byId("tools").hidden = empty
    byId("welcome").hidden = grid.list.length > 0
    byId("grid").classList.toggle("empty", grid.list.length === 0)
    byId("welcome").replaceChildren(...empty
        ? [element("ol", {}, ...texts.steps.map(step => element("li", {}, step))),
           element("button", {class: "main", onclick: () => byId("add-files").click()}, texts.addPhotographs)]
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
byId("filter").onchange = byId("order").onchange = byId("update").onclick = list

store.addEventListener("photographs", ({detail}) => {
    const cameOrWent = detail?.some(number => {
        const isNew = number >= photographsSeen, {gone} = store.photographs.get(number)
        return isNew || gone && grid.places.has(number)
    })
    photographsSeen = store.photographs.size
    if (cameOrWent) list()
    grid.refresh(detail)
    classBar.show()
    showFiltersSoon()
})
let photographsSeen = 0             // photographs have the numbers 0, 1, 2, ...

store.addEventListener("classes", () => {
    classBar.build()
    showFilters()
})
store.addEventListener("answers", () => {
    grid.refresh(null)
    showFiltersSoon()
})
store.addEventListener("status", () => say(byId("problem"), store.status.problem ?? ""))
grid.addEventListener("select", () => {
    classBar.show()
    const number = grid.focusedNumber()
    const name = number === undefined ? "" : store.photographs.get(number).name
    announce(texts.selected(grid.selected.size) || name)
    byId("open").disabled = number === undefined
})
grid.addEventListener("open", ({detail}) => open(detail))

function open(number) {
    grid.goToNumber(number)
    viewer.open(number)
}

// --- adding photographs --------------------------------------------------------------------------------------------

async function add(files) {
    if (!files.length) return message(texts.noPictures)
    const refused = await send(files, "/api/photographs", (done, total) => announce(texts.adding(done, total)))
    refused.slice(0, 3).forEach(message)
    message(texts.added(files.length - refused.length))
}

byId("add").onclick = () => byId("add-files").click()
byId("add-files").onchange = () => {
    add(pictures(byId("add-files").files))
    byId("add-files").value = ""
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
    add(await dropped(event.dataTransfer))
})

// --- buttons and keys ----------------------------------------------------------------------------------------------

function toggleMasks() {
    if (viewer.isOpen) return viewer.toggleMask()
    grid.masks = !grid.masks
    byId("masks").setAttribute("aria-checked", grid.masks)
    grid.refresh(null)
}

byId("undo").onclick = undo
byId("redo").onclick = redo
byId("help").onclick = () => byId("keys").showModal()
byId("masks").onclick = toggleMasks
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
    for (const button of document.querySelectorAll("nav [data-view]")) {
        button.setAttribute("aria-current", button.dataset.view === view)
    }
}
showView("photographs")

const isWriting = target => target.matches?.("input:not([type=range]):not([type=radio]), textarea, select")

addEventListener("keydown", event => {
    if (event.defaultPrevented || isWriting(event.target) || byId("keys").open || byId("classes").open) return
    if (event.altKey) return
    if (event.ctrlKey || event.metaKey ? command(event) : keyPressed(event)) event.preventDefault()
    else if (event.target === document.body && !viewer.isOpen) grid.key(event)      // nothing has the focus
})

function command(event) {
    const key = event.key.toLowerCase()
    if (key === "z" && viewer.isOpen && viewer.scribbles.active && !event.shiftKey) viewer.scribbles.undo()
    else if (key === "z" && !event.shiftKey) undo()
    else if (key === "y" || key === "z") redo()
    else return false
    return true
}

function keyPressed(event) {
    const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code)?.[1]
    const key = event.key.toLowerCase()
    if (digit === "0" || key === "n") press("none")
    else if (digit) pressDigit(Number(digit), event.shiftKey)
    else if (key === "backspace" || key === "delete") press("undecided")
    else if (key === "m") toggleMasks()
    else if (key === "?") byId("keys").showModal()
    else if (key === "/" && !viewer.isOpen) classBar.input.focus()
    else return viewer.isOpen && !event.target.matches?.("input") && viewer.key(event)
    return true
}

function pressDigit(label, large) {
    if (store.classes.some(found => found.label === label)) press(large || classBar.large ? "large" : "tag", label)
    classBar.shift(false)
}

classBar.input.addEventListener("keydown", event => {
    if (event.key === "Escape") byId("grid").focus()
})

try {
    await store.start()
    if (!grid.list.length) list()               // an empty folder: say what to do
    say(byId("folder"), store.folder)
    document.title = `${store.folder} – ${texts.title}`
    byId("undo").disabled = byId("redo").disabled = true
    byId("grid").focus()
} catch (error) {
    showConnection()
    if (error instanceof Refused && connection.state === "good") message(error.message)
}
