"""Compute the features of all photographs of a folder, tagged or not, before anybody asks: `ccnn ahead FOLDER`.

The studio starts this as a child process. What it computes is what ccnn learn would compute, in the same files.
"""
from pathlib import Path

import numpy as np

from ccnn._util.errors import ImageError
from ccnn._util.work_folder import claim
from ccnn.images.reading import upright_shape
from ccnn.nets.backbones import DEFAULT
from ccnn.project.folder import Known, OwnFolder
from ccnn.project.learn import RECIPE, Lesson
from ccnn.studio.album import Album


class Ahead(Lesson):
    """As much of a lesson as its features need: no tags, no question, no lock."""

    def __init__(self, root: Path, files: dict) -> None:
        nothing = np.zeros(0, bool)
        photographs = {id: Known(str(file), file.name, nothing, nothing, None) for id, file in files.items()}
        self.folder = OwnFolder(root, {}, (), photographs, "tags", None, [])
        self.recipe, self.trunk, self.contents = RECIPE, DEFAULT.fetch_weights(), self.folder.contents()


def readable(album: Album) -> dict:
    """{id: file} of the photographs that can be opened."""
    found = {}
    for photograph in album.there():
        if not photograph.problem:
            file = album.file(photograph)
            try:
                upright_shape(str(file))
            except ImageError:
                continue
            found[photograph.id] = file
    return found


def compute_ahead(folder: Path, jobs: int) -> None:
    album = Album(folder)
    album.refresh()
    claim(album.root)
    files = readable(album)
    while files:
        lesson = Ahead(album.root, files)
        try:
            lesson.compute_features(jobs)
            break
        except ImageError as error:             # damaged behind its head: the others are computed
            broken = [id for id, file in files.items() if str(error).startswith(f"{file}:")]
            if not broken:
                raise
            files = {id: file for id, file in files.items() if id not in broken}
