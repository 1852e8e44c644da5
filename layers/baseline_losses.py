"""The systems the paper compares with (section 7), as Caffe layers: ccnn.supervision.losses says what they compute.

Each takes bottoms (scores, tags), one top, and its settings as JSON in param_str.
"""
from loss_layer import LossLayer

from ccnn.supervision import losses


class EMAdaptLossLayer(LossLayer):
    Loss = losses.EMAdaptLoss


class MILFCNLossLayer(LossLayer):
    Loss = losses.MILFCNLoss


class MILBaseLossLayer(LossLayer):
    Loss = losses.MILBaseLoss
