/* What a key does to tags, as pure functions. They return what the photographs shall be: [{number, tags, large}].

   tags: null is no decision, [] is "none of the classes". */

export const sorted = labels => [...new Set(labels)].sort((a, b) => a - b)

/* Give the tag to all; take it from all if all have it. Without its last tag a photograph is undecided. */
export function toggleTag(photographs, label) {
    const everywhere = photographs.every(({tags}) => tags?.includes(label))
    return photographs.map(({number, tags, large}) => {
        const others = (tags ?? []).filter(l => l !== label)
        if (!everywhere) return {number, tags: sorted([...others, label]), large}
        return {number, tags: others.length ? others : null, large: large.filter(l => l !== label)}
    })
}

/* Say of all that the class is large, tagged or not before; say it of none if it is said of all. */
export function toggleLarge(photographs, label) {
    const everywhere = photographs.every(({large}) => large.includes(label))
    return photographs.map(({number, tags, large}) => everywhere
        ? {number, tags, large: large.filter(l => l !== label)}
        : {number, tags: sorted([...tags ?? [], label]), large: sorted([...large, label])})
}

export const setNone = photographs => photographs.map(({number}) => ({number, tags: [], large: []}))

export const setUndecided = photographs => photographs.map(({number}) => ({number, tags: null, large: []}))

export const sameTags = (a, b) => JSON.stringify([a.tags, a.large]) === JSON.stringify([b.tags, b.large])

/* A state with the names of the classes: their labels may change. */
export function named({tags, large}, classes) {
    const names = labels => labels.map(label => classes.find(c => c.label === label)?.name)
    return {tags: tags && names(tags), large: names(large)}
}

/* The state of a photograph again; null if a class or the photograph is no longer there. */
export function numbered({tags, large}, number, classes) {
    const labels = names => names.map(name => classes.find(c => c.name === name)?.label)
    const state = {number, tags: tags && sorted(labels(tags)), large: sorted(labels(large))}
    return [number, ...state.tags ?? [], ...state.large].includes(undefined) ? null : state
}

/* "true", "false" or "mixed": whether these photographs have the tag. */
export function pressed(photographs, has) {
    const number = photographs.filter(has).length
    return number === 0 ? "false" : number === photographs.length ? "true" : "mixed"
}
