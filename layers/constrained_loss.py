"""The constrained loss (paper, sections 4 and 5) as a Caffe layer.

    layer {
      name: "loss"  type: "Python"  bottom: "fc8"  bottom: "tags"  top: "loss"  loss_weight: 1
      python_param {
        module: "constrained_loss"  layer: "ConstrainedLossLayer"
        param_str: '{"supervision": "tags", "fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}'
      }
    }
"""
from loss_layer import LossLayer

from ccnn.supervision.constrained_loss import ConstrainedLoss


class ConstrainedLossLayer(LossLayer):
    """The tops are `loss` and, if a second one is there, the diagnostics."""

    Loss = ConstrainedLoss
