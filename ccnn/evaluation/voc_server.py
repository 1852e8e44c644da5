"""The archive that VOC's test server takes."""
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ccnn._util.files import whole_file
from ccnn._util.progress import Progress
from ccnn.evaluation.scores import prediction_paths, read_prediction
from ccnn.images.labels import indexed
from ccnn.images.reading import read_image

FOLDER = "results/VOC2012/Segmentation/comp6_test_cls"


def pack(path: Path, folder: Path, voc: Path, names: Sequence[str], labels: int) -> None:
    """Write FOLDER/ID.png for every image, indexed PNGs of the photographs' sizes, as .tar or compressed .tgz."""
    with whole_file(path) as part, tarfile.open(part, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for source in Progress(prediction_paths(folder, names), desc="packing", unit="image"):
            photograph = voc / "JPEGImages" / f"{source.stem}.jpg"
            size = read_image(photograph).shape[:2]
            data = io.BytesIO()
            indexed(read_prediction(source, labels, size, photograph)).save(data, "PNG")
            member = tarfile.TarInfo(f"{FOLDER}/{source.name}")
            member.size, member.mode = data.tell(), 0o644
            data.seek(0)
            tar.addfile(member, data)
