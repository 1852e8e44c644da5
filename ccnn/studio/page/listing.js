/* Which photographs the grid shows, in which order; and where the model disputes the tags. Pure functions. */

const NOTICED = 0.05        // as in the report: a class that is not tagged and covers this share contradicts the tags
const FOUND = 0.01          // so does a tagged class that covers less than this

/* [{label, area, tagged}]: the largest class that lacks a tag first. labels: those of the model's classes, today. */
export function disputes(photograph, answer, labels) {
    if (!answer || photograph.tags === null) return []
    const found = answer.areas.map((area, k) => ({label: labels[k], area, tagged: photograph.tags.includes(labels[k])}))
        .filter(({label}) => label > 0)
    const untagged = found.filter(({area, tagged}) => !tagged && area >= NOTICED).sort((a, b) => b.area - a.area)
    return [...untagged, ...found.filter(({area, tagged}) => tagged && area < FOUND)]
}

/* filter: "all", "undecided", "none", "disputed", "scribbled", "problem" or "class LABEL"; order: "folder" or "doubt".
   Returns the photographs' numbers. */
export function listing(photographs, answers, labels, filter, order) {
    const [kind, label] = filter.split(" ")
    const keep = {
        all: () => true,
        undecided: ({tags, problem}) => tags === null && !problem,
        none: ({tags}) => tags?.length === 0,
        disputed: photograph => disputes(photograph, answers.get(photograph.number), labels).length > 0,
        scribbled: ({scribble}) => scribble > 0,
        problem: ({problem}) => problem !== null,
        class: ({tags}) => tags?.includes(Number(label)),
    }[kind]
    const kept = photographs.filter(keep)
    const doubt = ({number}) => answers.get(number)?.doubt ?? -1
    if (order === "doubt") kept.sort((a, b) => doubt(b) - doubt(a) || a.number - b.number)
    return kept.map(photograph => photograph.number)
}
