"""A net that runs in no time and whose scores are known: for tests of the tools around nets."""
from ccnn.images.reading import MEAN_BGR
from ccnn.inference.caffe_net import load_caffe

PROTOTXT = """
name: "tiny"
layer {{ name: "data"  type: "Input"  top: "data"  input_param {{ shape {{ dim: 1  dim: 3  dim: 33  dim: 33 }} }} }}
layer {{
  name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
  convolution_param {{ num_output: {labels}  kernel_size: 1  stride: 8  weight_filler {{ type: "msra" }} }}
}}
"""


def make_net(folder, labels=21, slope=1.0, edge=128.0):
    """Write tiny.prototxt and tiny.caffemodel; return their paths.

    Cell k of fc8 sees pixel 8 k only. Background scores 0 and label 1 scores slope * (red - edge), so that label 1 is
    where red exceeds `edge`; label 2 scores slope * (red - edge - 50), and the others are out of the question.
    """
    caffe = load_caffe()
    prototxt, weights = folder / "tiny.prototxt", folder / "tiny.caffemodel"
    prototxt.write_text(PROTOTXT.format(labels=labels))
    net = caffe.Net(str(prototxt), caffe.TEST)
    kernel, bias = (blob.data for blob in net.params["fc8"])
    kernel[...], bias[...] = 0, -1000
    kernel[1:3, 2] = slope                                      # red: the last channel of BGR
    bias[:3] = 0, slope * (MEAN_BGR[2] - edge), slope * (MEAN_BGR[2] - edge - 50)
    net.save(str(weights))
    return prototxt, weights
