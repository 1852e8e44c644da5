/* Which photographs the grid shows, in which order; and where the model disputes the tags. Pure functions. */

/* [{label, area, tagged}], as the server found them; the largest class that lacks a tag first. labels: those of the
   model's classes, today. */
export function disputes(prediction, labels) {
    return (prediction?.disputes ?? []).map(([label, area, tagged]) => ({label: labels[label], area, tagged}))
        .filter(({label}) => label > 0)
}

/* filter: "all", "undecided", "none", "disputed", "doubtful", "scribbled", "problem" or "class LABEL"; name: part of the
   photographs' names; order: "doubt", "changed" or "folder". Returns the photographs' numbers. */
export function listing(photographs, predictions, {filter = "all", name = "", order = "folder"}) {
    const [kind, label] = filter.split(" ")
    const of = what => ({number}) => predictions.get(number)?.[what] ?? -1
    const byName = (a, b) => a.name < b.name ? -1 : 1           // their numbers: in the order in which they came
    const most = what => (a, b) => of(what)(b) - of(what)(a) || byName(a, b)
    const doubtful = kind === "doubtful" && quarter(photographs.map(of("doubt")))
    const keep = {
        all: () => true,
        undecided: ({tags, problem}) => tags === null && !problem,
        none: ({tags}) => tags?.length === 0,
        disputed: ({number}) => predictions.get(number)?.disputes?.length > 0,
        doubtful: photograph => of("doubt")(photograph) >= doubtful,
        scribbled: ({scribble}) => scribble > 0,
        problem: ({problem}) => problem !== null,
        class: ({tags}) => tags?.includes(Number(label)),
    }[kind]
    const part = name.trim().toLowerCase()
    const kept = photographs.filter(photograph => keep(photograph) && photograph.name.toLowerCase().includes(part))
    kept.sort({doubt: most("rank"), changed: most("changed"), folder: byName}[order])
    return kept.map(photograph => photograph.number)
}

/* The least of the largest quarter of the values that are known (not negative); Infinity: none is. */
function quarter(values) {
    const known = values.filter(value => value >= 0).sort((a, b) => b - a)
    return known.length ? known[Math.ceil(known.length / 4) - 1] : Infinity
}
