"""The score grid: as many cells as Caffe makes, and where they sit."""
import caffe
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from ccnn.images import grid
from ccnn.images.grid import Axis, Scores, label_map, mean_scores, mirrored, possible_labels, sample, score_size
from ccnn.nets.backbones import VGG16


def test_score_size_is_that_of_caffes_pooling(tmp_path):
    path = tmp_path / "pools.prototxt"
    text = 'layer { name: "0" type: "Input" top: "0" input_param { shape { dim: 1 dim: 1 dim: 9 dim: 9 } } }'
    for k in (1, 2, 3):
        text += f"""layer {{ name: "{k}" type: "Pooling" bottom: "{k - 1}" top: "{k}"
                    pooling_param {{ kernel_size: 3 stride: 2 pad: 1 }} }}"""
    path.write_text(text)
    pools = caffe.Net(str(path), caffe.TEST)
    for size in [*range(1, 60), 320, 321, 322, 375, 500, 513]:
        pools.blobs["0"].reshape(1, 1, size, 1)
        pools.reshape()
        assert [pools.blobs[str(k)].data.shape[2] for k in (2, 3)] == [score_size(size, 4), score_size(size)]
    assert score_size(321) == 41


def test_cells_of_a_crop_by_hand():
    """20 of 40 rows, the crop in the middle: fraction 0.5 of 21 possible places is row 10."""
    axis = Axis.of_image(size=40, length=40, stride=8, crop=20, fraction=0.5)
    assert axis.window == slice(10, 30) and (axis.low, axis.high) == (10, 30)
    assert axis.cells.tolist() == [10, 18, 26, 29]         # the last one would sit on row 34, outside
    assert axis.cells_of(11, 27) == (1, 3)
    assert axis.cells_of(19, 22) == (1, 2)                  # between two cells: 18 is nearer to 20 than 26
    assert axis.meets(0, 11) and axis.meets(29, 40) and not axis.meets(0, 10) and not axis.meets(30, 40)


def test_a_reduced_image_keeps_its_pixels_in_the_file():
    axis = Axis.of_image(size=300, length=100, stride=8, crop=0, fraction=0.99)
    assert axis.window == slice(0, 100) and (axis.low, axis.high) == (0, 300)
    assert axis.cells.tolist() == [min(3 * 8 * k + 1, 299) for k in range(14)]     # the middle one of three pixels


@pytest.mark.parametrize("flipped, start", [(False, 0), (True, -4)])
def test_cells_of_features_sit_on_edges(flipped, start):
    """36 pixels have 37 edges, so cells 0, 8, ..., 40; a flipped grid begins 4 pixels outside."""
    axis = Axis.of_features(size=36, length=36, backbone=VGG16, crop=0, fraction=0, cells=6, flipped=flipped)
    assert axis.window == slice(0, 6)
    assert axis.cells.tolist() == np.clip(start + 8 * np.arange(6), 0, 35).tolist()


def test_scores_at_several_sizes_meet_at_the_same_place():
    """A ramp over the image, known at two sizes by different nets: their mean is the ramp, at the finer one's cells."""
    def ramp(height, width, stride, offset):
        rows, columns = (offset + stride * np.arange((side - 1) // stride + 1) for side in (height, width))
        values = (rows[:, None] + 0.5) / height + 10 * (columns + 0.5) / width
        return Scores(values[None].astype(np.float32), (height, width), stride, offset)
    fine, coarse = ramp(240, 320, 8, 0), ramp(120, 160, 8, -0.5)
    for several in ([fine, coarse], [coarse, fine]):
        mean = mean_scores(several)
        assert mean[1:] == fine[1:] and mean.values.dtype == np.float32 and mean.values.shape == fine.values.shape
        inner = np.s_[:, 1:-3, 1:-3]                # beyond the coarse one's last cell its border is repeated
        assert np.allclose(mean.values[inner], fine.values[inner], atol=1e-4)
    other = coarse._replace(values=coarse.values + 2)
    assert np.allclose(mean_scores([fine, other]).values[inner], fine.values[inner] + 1, atol=1e-4)
    assert np.array_equal(mean_scores([fine]).values, fine.values)


@pytest.mark.parametrize("offset", [0, -0.5])
def test_the_scores_of_a_mirror_image_come_back_to_their_places(offset):
    """Scores that grow by 2 a pixel to the right fall by 2 in the mirror image."""
    width, cells = 60, np.arange(8)
    pixels = offset + 8 * cells
    seen = np.broadcast_to((2.0 * (width - 1 - pixels)).astype(np.float32), (1, 3, 8))
    back = mirrored(Scores(seen, (24, width), 8, offset)).values
    inside = (pixels >= width - 1 - pixels[-1]) & (pixels <= width - 1 - pixels[0])     # beyond, the border repeats
    assert inside.sum() >= 6
    assert back[0, :, inside].T == pytest.approx(np.broadcast_to(2.0 * pixels[inside], (3, inside.sum())), abs=1e-4)


@pytest.mark.parametrize("shape", [(21, 9, 12), (4, 50, 60), (5, 1, 7), (5, 7, 1), (3, 1, 1), (1, 4, 4)])
def test_labels_that_cannot_win_are_left_out(shape, monkeypatch):
    """The labels are those of all values enlarged; smooth maps have few labels that could win, noise has all."""
    rng, few = np.random.default_rng(3), 0
    for smooth in (0, 2):
        values = gaussian_filter(rng.normal(size=shape), (0, smooth, smooth)).astype(np.float32)
        values[rng.integers(shape[0])] = 0          # where it is the largest, no cell need say so
        values[-1] = values[0]                      # the first of two equals is the label
        few += len(possible_labels(values)) < shape[0]
        y, x = (np.linspace(-0.7, cells - 0.3, 40) for cells in shape[1:])
        for strip in (grid.STRIP, 40 * shape[0]):           # all rows at once, and row by row
            monkeypatch.setattr(grid, "STRIP", strip)
            assert np.array_equal(label_map(values, y, x), sample(values, y, x).argmax(axis=0))
    assert few or shape[0] < 21
