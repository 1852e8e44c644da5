/* Every English text of the page. A function takes what stands in the sentence. */

const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`
const photographs = number => counted(number, "photograph")
const percent = share => `${+(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`
const time = seconds => seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`
const left = seconds => seconds === null ? "" : `, ${time(seconds)} left`

const counts = (done, refused, total) => `${done} of ${total}` + (refused ? `, ${refused} refused` : "")
const safe = (number, kept) => !kept ? ": leave this page open." : number === 1 ? "; this browser keeps it."
    : "; this browser keeps them."

export const texts = {
    // the frame
    title: "CCNN studio",
    undo: "Undo", undoHint: "Undo (Ctrl+Z)",
    redo: "Redo", redoHint: "Redo (Ctrl+Shift+Z)",
    help: "Keys", helpHint: "Keys (?)",
    views: "Views",
    viewPhotographs: "Photographs", viewLearn: "Learn", viewOut: "Take away",
    tally: ({photographs: all, decided}) => `${decided} of ${photographs(all)} tagged`,
    close: "Close", closeHint: "Close (Esc)",
    dismiss: "Dismiss",

    // photographs
    photographs: "Photographs",
    show: "Show", order: "Order",
    filters: {
        all: number => `All (${number})`,
        undecided: number => `Undecided (${number})`,
        none: number => `None of the classes (${number})`,
        disputed: number => `Disputed by the model (${number})`,
        doubtful: number => `Most in doubt (${number})`,
        scribbled: number => `With marks (${number})`,
        problem: number => `Cannot be used (${number})`,
        class: (number, name) => `${name} (${number})`,
    },
    orders: {doubt: "disputed first", changed: "most changed first", folder: "as in the folder"},
    find: "Name contains", findShort: "Name…", findHint: "Show only photographs with this in their name",
    update: number => `Update: ${number} no longer fit`,
    updateOrder: "Update the order",
    masks: "Masks", masksHint: "Show masks on the photographs (M)",
    open: "Open", openHint: "Open large (Enter)",
    selectAll: "Select all", selectAllHint: "Select all (Ctrl+A)",
    addPhotographs: "Add photographs…", addShort: "Photographs…", addFolder: "Add a folder…",
    addHint: "Add photographs; you can also drop photographs and folders anywhere on this page",
    selected: number => number === 1 ? "1 photograph selected." : number ? `${photographs(number)} selected: keys act on all of them.` : "",
    nothingHere: "No photograph here. Show all photographs to see them again.",
    cannotBeUsed: "cannot be used",
    dispute: (name, {area, tagged}) => tagged ? `${name} is tagged, but hardly found`
        : `${name} is not tagged, but covers ${percent(area)}`,
    tagSpoken: (name, large) => large ? `${name}, large` : name,

    // classes
    classbar: "What do the photographs show?",
    undecided: "undecided", undecidedHint: "Take the decision back (Backspace)",
    none: "none of the classes", noneKey: "none", noneHint: "None of the classes is to be seen (0)",
    large: "large", largeMark: "large",
    largeHint: "The next class covers more than a tenth of the photograph (hold Shift with its key)",
    tagHint: label => label <= 9 ? `Key ${label}; with Shift: large` : "With Shift: large",
    typeClass: "Type a class",
    addClass: "Add",
    editClasses: "Edit classes", edit: "Edit",
    editClassesHint: "A class that photographs, marks or constraints still use cannot be removed.",
    className: name => `Name of the class ${name}`,
    rename: "Rename", renameLabel: name => `Rename ${name}`,
    remove: "Remove", removeLabel: name => `Remove ${name}`,
    kindLabel: name => `Is ${name} an object or a surface?`,
    kindHint: "An object, such as a cat, stands out from what is around it; a surface, such as grass, does not",
    kinds: (kind, found) => ({object: "object", surface: "surface"})[kind]
        ?? (found ? `automatic: ${found}` : "object or surface: automatic"),
    noClasses: "There are no classes yet. Type one beside the keys.",
    classCount: number => photographs(number),
    classAdded: (name, key) => key <= 9 ? `${name} is a class now: its key is ${key}.` : `${name} is a class now.`,
    tagged: (what, number) => `${what}: ${photographs(number)}`,
    undone: number => `Undone: ${photographs(number)}`,
    redone: number => `Redone: ${photographs(number)}`,
    nothingToUndo: "There is nothing to undo.",
    nothingToRedo: "There is nothing to redo.",

    // changes that did not arrive
    conflict: names => `Changed elsewhere meanwhile, and shown as it is now: ${names.slice(0, 3).join(", ")}`
        + (names.length > 3 ? ` and ${names.length - 3} more` : ""),
    refused: (name, error) => `${name}: ${error}`,
    lost: (waiting, kept) => "The studio does not answer; trying again."
        + (waiting ? ` ${counted(waiting, "change waits", "changes wait")} to be saved${safe(waiting, kept)}` : ""),
    restarted: (waiting, kept) => "The studio was started again: open the address that it printed."
        + (waiting ? ` ${counted(waiting, "change waits", "changes wait")} to be saved${safe(waiting, kept)}` : ""),

    // learning
    learn: "Learn",
    steps: [
        "Drop photographs onto this page, or put them into the folder.",
        "Type what you look for, and press its key on every photograph that shows it; press 0 where there is none.",
        "Press Train: the masks appear on the photographs, and you correct the tags that the model disputes.",
    ],
    features: "Photographs read",
    featuresText: (done, total, seconds) =>
        `Reading photographs: ${Math.floor(100 * done / total)} %${left(seconds)}`,
    train: "Train", stop: "Stop",
    check: "Train and check",
    checkHint: "Hold photographs out as well, to measure how many tags are found; takes longer",
    trainingProgress: "Progress of the training",
    phase: ({phase, iteration, iterations, loss, seconds}) => ({
        features: "Reading photographs first",
        training: `Step ${iteration} of ${iterations}` + (loss === null ? "" : `, loss ${loss.toPrecision(2)}`)
            + left(seconds),
        report: "Writing the report",
        stopping: "Stopping after this step",
    })[phase] ?? phase,
    nothingNew: "The model knows all tags.",
    stopped: reached => reached ? `Stopped at step ${reached[0]} of ${reached[1]}. The masks are those of the last step `
        + "that was saved. Train goes on from there, unless tags have changed."
        : "Stopped before the first step: the masks are as they were.",
    trained: (disputed, order) => "Trained. " + (!disputed ? "The model disputes no tag."
        : `The model disputes the tags of ${photographs(disputed)}`
            + (order === "doubt" ? ": they come first." : ": filter or order by them.")),
    results: "Check on photographs held out",
    resultClass: "Class", resultFound: "Tags found", resultFalse: "Found wrongly", resultIou: "IoU",
    foundOf: (found, all) => `${found} of ${all}`,
    points: change => `${Math.round(100 * change)} %`,
    meanIou: (now, before) => `Mean IoU on marked pixels, which are often the hard ones: ${now.toFixed(2)}`
        + (before == null ? "." : `, ${before.toFixed(2)} at the check before.`),
    resultsChange: "In colour: the change since the check before.",
    sentence: line => `${line[0].toUpperCase()}${line.slice(1)}.`,
    auto: "Train by itself",
    autoHint: "Trains when you pause.",
    model: ({classes, photographs: seen, iterations, final}) =>
        `${final ? "Model" : "Model in the making"}: ${classes.slice(1).join(", ")}; ${photographs(seen)}, `
        + `${counted(iterations, "step")}.`,
    lines: "What the training said",
    lossAxis: "loss over steps",
    secondRound: "2nd round",
    roundsHint: "The first round learns from the tags, the second from the masks of the first: its loss is another one.",
    lossSpoken: (first, last, steps) =>
        `Loss: ${first.toPrecision(2)} at first, ${last.toPrecision(2)} after ${steps} steps`,

    // taking away
    out: "Take away",
    exportModel: ["model.ccnn", "the model, one file"],
    exportTags: ["tags.csv", "the tags, as a table"],
    exportReport: ["report.html", "what was learned, and which tags to doubt"],
    export: "Export the masks…",
    exportTitle: "Export the masks",
    exportHint: "Of all photographs in the folder, as the page shows them: what you have marked holds.",
    exportMissing: number => `${counted(number, "photograph is", "photographs are")} not read yet, and missing in the files.`,
    afterTraining: "after a training", afterTagging: "after the first tag",
    commands: "The same from the command line",
    commandFor: {train: "Train and check", segment: "Segment a folder of new photographs",
                 tags: "Take over tags that another program has exported"},
    commandsHint: "The folder holds everything: tags, classes, model.",
    copy: "Copy", copied: "Copied", copySelected: "Press Ctrl+C", copyLabel: what => `Copy the command: ${what}`,
    batch: "Segment other photographs",
    batchHint: "With this model. They are not added to the folder.",
    batchChoose: "Choose photographs…", batchFolder: "Choose a folder…",
    batchDrop: "or drop them here",
    batchProgress: "Progress of the other photographs",
    batchSending: (done, refused, total) => `Sending: ${counts(done, refused, total)}`,
    batchSegmenting: (done, total) => `Segmenting: ${done} of ${total}`,
    batchDone: (total, refused) => refused ? `${counts(total, refused, total + refused)}: segmented.`
        : `${photographs(total)} segmented.`,
    batchNothing: "No photograph could be read.",
    batchZip: "Masks and overlays (zip)",
    batchAlt: name => `${name} under its mask`,
    noPictures: "There is no picture among these files.",
    noPicture: "is not a photograph",
    refusedFiles: number => `${counted(number, "file")} refused`,

    // adding photographs
    dropping: "Drop to add these photographs to the folder",
    adding: (done, refused, total) => `Adding photographs: ${counts(done, refused, total)}`,
    added: (done, refused, total) => refused ? `Photographs added: ${counts(done, refused, total)}`
        : `${photographs(done)} added.`,

    // a photograph opened large
    previous: "Previous photograph", previousHint: "Previous photograph (←)",
    next: "Next photograph", nextHint: "Next photograph (→)",
    pixels: (width, height) => `${width} × ${height} pixels`,
    layer: "On the photograph",
    layers: {mask: "Mask", outline: "Outlines", before: "Mask before the training (hold F)", probability: "Probability",
             p: "Constrained target (p)", nothing: "Nothing"},
    probabilityOf: "of",
    opacity: "Opacity",
    areas: "Shares of the photograph",
    areasText: "Light: the net's output (q), what the net sees by itself. Full: the constrained target (p), the nearest "
        + "to it that keeps what the tags say; training draws the net towards it. Drag a bound to try another.",
    areasPreview: "A preview: the bounds that you moved are tried here only. Nothing is saved, and no training uses them.",
    areasNone: (tagged, model) => (!tagged ? "Tag the photograph" : !model ? "Train" : "Train again")
        + ": then the shares of its classes stand here.",
    areasReset: "Bounds as trained",
    areaNumbers: ({q, p, allowed}) => allowed ? `${percent(q)} → ${percent(p)}` : `${percent(q)} → not tagged`,
    bound: (name, which) => which === "least" ? `${name}: at least` : `${name}: at most`,
    percent,
    solved: ({status, iterations, milliseconds}) => ({
        optimal: `Solved in ${counted(iterations, "step")}, ${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms.`,
        infeasible: "Nothing keeps all these bounds at once.",
        stalled: "The solver stopped before it was sure.",
    })[status],
    correct: "Correct the mask",
    correctHint: "Brush, or click to give a whole piece to a class: the mask obeys at once, and the next training learns "
        + "from it. The right button marks background. The eraser takes marks away: there the model decides again.",
    toolbar: "Tools", tool: "Tool",
    tools: {hand: "Move", brush: "Brush", eraser: "Eraser", region: "Region"},
    toolHints: {hand: "Move the photograph, zoom with the wheel (V)", brush: "Mark pixels as a class (B)",
                eraser: "Take marks away (E)",
                region: "Click a piece of even colour to give it to a class; with Shift all of the mask's piece (R)"},
    toolSpoken: {
        hand: "The photograph",
        brush: "Brush: arrows move the cross, with Shift by less; Enter marks a point",
        eraser: "Eraser: arrows move the cross, with Shift by less; Enter takes marks away",
        region: "Region: arrows move the cross, with Shift by less; Enter gives the piece under it",
    },
    drawClass: "Class to draw with", drawClassHint: "Class to draw with (1 – 9, X: background)",
    brush: "Size", brushHint: "Size of the brush ([ and ])",
    lens: "Magnifier", lensHint: "Magnifier for edges (L)",
    zoom: scale => `${Math.round(100 * scale)} %`,
    zoomIn: "Zoom in", zoomInHint: "Zoom in (+)", zoomOut: "Zoom out", zoomOutHint: "Zoom out (−)",
    zoomWholeHint: "The whole photograph (0)",

    // help
    keys: "Keys",
    keyTable: [
        ["1 – 9", "tag with this class; again: take the tag away"],
        ["Shift + 1 – 9", "the class covers more than a tenth"],
        ["0 or N", "none of the classes"],
        ["Backspace or Delete", "no decision"],
        ["/", "type a class"],
        ["Arrows", "move; with Shift: select"],
        ["Space", "select, or not"],
        ["Ctrl + A, Esc", "select all, select none"],
        ["Enter, Esc", "open large, back"],
        ["M", "masks on and off"],
        ["F", "hold: the mask before the last training"],
        ["V, B, E, R", "in a photograph opened large: move, brush, eraser, region"],
        ["1 – 9, X", "while drawing: the class to draw with, background"],
        ["[, ]", "smaller, larger brush"],
        ["Arrows, Enter", "while drawing: move the cross, mark there"],
        ["+, −, 0", "zoom in, out, the whole photograph"],
        ["L", "magnifier"],
        ["Page Up, Page Down", "previous, next photograph"],
        ["Ctrl + Z, Ctrl + Shift + Z", "undo, redo"],
        ["?", "this list"],
    ],
}
