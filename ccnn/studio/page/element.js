/* Making and finding elements. A child that is a string becomes text, never HTML: names may hold anything. */

export function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) made.addEventListener(name.slice(2), value)
        else if (value === true) made.setAttribute(name, "")
        else if (value !== false && value != null) made.setAttribute(name, value)
    }
    made.append(...children.filter(child => child != null))
    return made
}

export const byId = id => document.getElementById(id)

/* A name within a sentence: its direction of writing stays its own. */
export const nameElement = name => element("bdi", {}, name)

export function swatch(colour, text = "") {
    const made = element("i", {class: "swatch", "aria-hidden": "true"}, text)
    made.style.background = colour
    made.style.color = inkOn(colour)
    return made
}

/* Black or white, whichever is read more easily on a colour "#rrggbb". */
export function inkOn(colour) {
    const [r, g, b] = [1, 3, 5].map(at => {
        const v = parseInt(colour.slice(at, at + 2), 16) / 255
        return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    })
    const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000" : "#fff"
}

/* Write text only where it differs, so that a screen reader does not say it again. */
export function say(target, text) {
    if (target.textContent !== text) target.textContent = text
    target.hidden = !text
}

/* options: [[value, text]]. Elements stay where they can: the list may be open just now. */
export function showOptions(select, options) {
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
