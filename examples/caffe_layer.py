"""The constrained loss in a Caffe net: one Python layer, its settings in the net.

    source .caffe/activate
    python3 examples/caffe_layer.py         # needs Caffe; `caffe train` runs the same layer

The net below has scores of 3 labels on 8 x 8 cells. Its layer turns the tags into constraints, and its backward pass
gives the gradient q - p to the scores.
"""
import os
import tempfile

os.environ.setdefault("GLOG_minloglevel", "2")        # errors only; read when Caffe is loaded
import caffe
import numpy as np

NET = """
force_backward: true
layer { name: "fc8"   type: "Input"  top: "fc8"   input_param { shape { dim: 1  dim: 3  dim: 8  dim: 8 } } }
layer { name: "tags"  type: "Input"  top: "tags"  input_param { shape { dim: 1  dim: 3 } } }
layer {
  name: "loss"  type: "Python"  bottom: "fc8"  bottom: "tags"  top: "loss"  loss_weight: 1
  python_param {
    module: "constrained_loss"  layer: "ConstrainedLossLayer"
    param_str: '{"supervision": "tags", "fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}'
  }
}
"""
with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
    file.write(NET)
    file.flush()
    net = caffe.Net(file.name, caffe.TRAIN)

net.blobs["tags"].data[...] = [[1, 1, 0]]                # background and label 1; label 2 is not in the image
for step in range(200):                                 # gradient descent on the scores themselves
    loss = net.forward()["loss"].item()
    net.backward()
    net.blobs["fc8"].data[...] -= 50 * net.blobs["fc8"].diff
    if step in (0, 199):
        q = np.exp(net.blobs["fc8"].data[0])
        area = (q / q.sum(axis=0)).mean(axis=(1, 2))
        print(f"step {step}: loss {loss:.4f}; areas " + ", ".join(f"{share:.2f}" for share in area))
