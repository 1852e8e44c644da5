// Sends a photograph and shows it under its mask.
const byId = id => document.getElementById(id)
let latest = 0

async function ask(path, options) {
  const answer = await fetch(path, options)
  if (!answer.ok) throw new Error((await answer.json()).error)
  return answer
}

function show(link, property, blob) {
  if (link[property].startsWith("blob:")) URL.revokeObjectURL(link[property])
  link[property] = URL.createObjectURL(blob)
}

function say(text, working = false, wrong = false) {
  byId("said").textContent = text
  byId("said").classList.toggle("wrong", wrong)
  byId("working").hidden = !working
}

async function segment(file) {
  const number = ++latest
  say(`${file.name} is being segmented`, true)
  try {
    const send = format => ask(`/segment?format=${format}`, {method: "POST", body: file}).then(answer => answer.blob())
    const overlay = await send("overlay"), mask = await send("png")
    if (number !== latest) return                           // another photograph came meanwhile
    show(byId("picture"), "src", overlay)
    show(byId("mask"), "href", mask)
    byId("mask").download = file.name.replace(/\.\w+$/, "") + ".png"
    byId("picture").alt = `${file.name} under its mask`
    byId("picture").hidden = byId("out").hidden = false
    say(file.name)
  } catch (problem) {
    if (number !== latest) return
    byId("picture").hidden = byId("out").hidden = true      // they are another photograph's
    say(`${file.name}: ${problem.message.replace("the photograph: ", "")}`, false, true)
  }
}

byId("file").addEventListener("change", event => {
  if (event.target.files[0]) segment(event.target.files[0])
  event.target.value = ""
})
for (const kind of ["dragover", "dragleave", "drop"])
  addEventListener(kind, event => {
    event.preventDefault()
    byId("drop").classList.toggle("over", kind === "dragover")
    if (kind === "drop" && event.dataTransfer.files[0]) segment(event.dataTransfer.files[0])
  })
addEventListener("paste", event => {
  if (event.clipboardData.files[0]) segment(event.clipboardData.files[0])
})
const {classes} = await (await ask("/model")).json()
byId("classes").textContent = `It knows ${classes.join(", ")}.`
