"""The trunk: the convolutions below the classifier."""
from ccnn.paths import ROOT

FEATURES = 1024         # channels of prototxt/trunk.prototxt's `features`

WEIGHTS = ROOT / "data/vgg16_conv.caffemodel"

NET = ROOT / "prototxt/trunk.prototxt"

VGG16_CONVOLUTIONS = [f"conv{block}_{number}" for block, layers in enumerate((2, 2, 3, 3, 3), start=1)
                      for number in range(1, layers + 1)]
