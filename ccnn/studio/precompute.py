"""Compute the features of all photographs of a folder, tagged or not, ahead of a training: `ccnn ahead FOLDER`.

The studio starts this as a child process. It computes what ccnn learn would compute, in the same files.
"""
import contextlib
from pathlib import Path

from ccnn._util.files import digest
from ccnn._util.work_folder import claim
from ccnn.project.feature_cache import update_features, update_maps
from ccnn.project.learn import RECIPE, choose_cue
from ccnn.studio.album import Album


def compute_features(folder: Path, jobs: int) -> None:
    """Photographs that cannot be read are left out; the studio finds that they have no features."""
    album = Album(folder)
    work = claim(album.root)
    album.refresh()
    files, digests = {}, {}
    for photograph in album.there():
        if not photograph.problem:
            file = str(album.file(photograph))
            with contextlib.suppress(OSError):
                digests[photograph.id] = digest(file)
                files[photograph.id] = file
    if files:
        update_features(work, RECIPE.backbone, RECIPE.sizes, files, digests, jobs)
        cue, _ = choose_cue(album.rules)
        if cue:
            update_maps(work, cue.name, files, digests, jobs)
