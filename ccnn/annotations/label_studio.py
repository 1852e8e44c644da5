"""Tags and boxes from Label Studio's exports. See ccnn.annotations.importers for what the readers yield."""
from urllib.parse import parse_qs, unquote, urlsplit

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import fractions, get, items, number, short
from ccnn.images.formats import SUFFIX

STUDIO_KEYS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"}


def read_label_studio(path, tasks, skipped):
    """A task without an annotation is not labelled, so it is left out; one with an empty annotation has no class.
    Several annotations of a task are joined. Predictions are not read."""
    for k, task in enumerate(tasks):
        where = f"{path}, task {k + 1}"
        name = _image_value(get(task, "data", dict, where), where)
        given = task.get("annotations", task.get("completions"))        # the second: before version 1.0
        if not isinstance(given, list):
            raise UserError(f"{where}: has no list `annotations`; export as JSON")
        done = [item for item in given if isinstance(item, dict) and not item.get("was_cancelled")]
        if len(done) < len(given):
            skipped["annotations that were cancelled"] += len(given) - len(done)
        if not done:
            skipped["tasks that nobody labelled"] += 1
            continue
        objects = []
        for annotation in done:
            for result, place in items(annotation, "result", where):
                kind, value = get(result, "type", str, place), result.get("value")
                labels = value.get(kind) if isinstance(value, dict) else None
                if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                    skipped[f"results of type {kind!r}, which name no class"] += 1
                    continue
                objects += _studio_objects(value, kind, labels, place, skipped)
        yield name, objects, f"task {k + 1}"


def read_label_studio_min(path, tasks, skipped):
    """One value per control: "cat", {"choices": ["cat", "dog"]}, or a list of regions that have their labels."""
    rows, words = [], set()
    for k, task in enumerate(tasks, 1):
        where = f"{path}, task {k}"
        if not isinstance(task, dict):
            raise UserError(f"{where}: must be an object, {{...}}; got {short(task)}")
        values = {key: value for key, value in task.items() if key not in STUDIO_KEYS}
        rows.append((_image_value(values, where), values, where))
        words |= {key for key, value in values.items() if isinstance(value, str) and not is_image(value)}
    if len(words) > 1:
        raise UserError(f"{path}: {' and '.join(sorted(words))} all hold text, and one of them the classes; "
                        "export as JSON instead of JSON-MIN")
    for k, (name, values, where) in enumerate(rows, 1):
        controls = {key: value for key, value in values.items() if isinstance(value, (dict, list)) or key in words}
        objects = [item for key, value in controls.items() if value is not None
                   for item in _control_objects(value, f"{where}: {key}", skipped)]
        if not objects and None in controls.values():
            skipped["tasks that nobody labelled"] += 1
            continue
        yield name, objects, f"task {k}"


def _control_objects(value, place, skipped):
    """The objects of one control in JSON-MIN."""
    if isinstance(value, str):
        return [(value, None, None)]
    if isinstance(value, dict):
        return [(label, None, None) for label in _names(value, "choices", place)]
    if not isinstance(value, list):
        raise UserError(f"{place}: expected text, choices or regions; got {short(value)}")
    objects = []
    for region in value:
        kind = next((key for key in region if key.endswith("labels")), None) if isinstance(region, dict) else None
        if kind is None:
            raise UserError(f"{place}: expected regions with labels; got {short(region)}")
        objects += _studio_objects(region, kind, _names(region, kind, place), place, skipped)
    return objects


def _names(value, key, place):
    """The class names in value[key]; none if there is nothing."""
    names = value.get(key)
    names = [] if names is None else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{place}: {key} must be a list of names; got {short(names)}")
    return names


def _studio_objects(value, kind, labels, place, skipped):
    """Rectangles are in per cent of width and height; a turned one has no box of ours."""
    box = None
    if kind == "rectanglelabels":
        x, y, w, h = (number(value.get(key), f"{place}: {key}") for key in ("x", "y", "width", "height"))
        if value.get("rotation"):
            skipped["boxes that are turned: their tags were taken"] += 1
        else:
            box = fractions(y, x, y + h, x + w, 100, 100, skipped)
    return [(label, box, None) for label in labels]


def _image_value(values, where):
    """The file's name among the values of a task."""
    for value in values.values():
        if isinstance(value, str) and is_image(value):
            return file_name(value)
    raise UserError(f"{where}: names no photograph (.jpg, .png, ...); got {short(values)}")


def is_image(url):
    return bool(SUFFIX.search(file_name(url)))


def file_name(url):
    """cat.jpg of /data/upload/1/cat.jpg, s3://bucket/cat.jpg, /data/local-files/?d=folder/cat.jpg"""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    inner = parse_qs(parts.query).get("d")
    return inner[0] if inner else unquote(parts.path).rpartition("/")[2]
