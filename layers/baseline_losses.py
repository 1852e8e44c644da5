"""The systems the paper compares with (section 7), as Caffe layers, and MIL-Base's image-level prior.

Each takes bottoms (scores, tags), one top, and its settings as JSON in param_str; see LossLayer. In the equations
f_i(l) is the score of label l at pixel i of n, q_i = softmax(f_i), and z is the set of labels in the image, background
included.
"""
import numpy as np
from loss_layer import LossLayer, finite

import ccnn
from ccnn._util.settings import COUNT, POSITIVE, SHARE, Setting
from ccnn.images.labels import BACKGROUND
from ccnn.supervision.baselines import adaptive_bias, log_mean_exp, log_softmax
from ccnn.supervision.constraints import mask_constraints


class EMAdaptLossLayer(LossLayer):
    """Hard EM with an adaptive bias.

    Source: Papandreou, Chen, Murphy, Yuille: Weakly- and semi-supervised learning of a deep convolutional
    network for semantic image segmentation, ICCV 2015 (EM-Adapt; the shares are the paper's).

    E-step     y_i = argmax_{l in z} f_i(l) + b_l, where b gives the background at least rho_bg of the pixels
               and every other label of z at least rho_fg (see adaptive_bias)
    M-step     loss = -mean_i log q_i(y_i), y held fixed: the gradient is q_i - onehot(y_i), per pixel

    param_str  {"rho_fg": 0.2, "rho_bg": 0.4, "rounds": 5}
    """

    SETTINGS = {
        "rho_fg": Setting(SHARE, 0.2, "share of the image for every label but the background"),
        "rho_bg": Setting(SHARE, 0.4, "share of the image for the background"),
        "rounds": Setting(COUNT, 5, "see adaptive_bias"),
    }

    def image_loss(self, k, f, diff, bottom):
        labels = self.present(k, bottom)
        scores = finite(f)[labels]
        b = adaptive_bias(scores, **self.settings, background=labels[0] == BACKGROUND)
        y = labels[(scores + b[:, None]).argmax(axis=0)]
        return ccnn.maximize(f, mask_constraints(y, len(f)), diff=diff).loss


class MILFCNLossLayer(LossLayer):
    """Multi-class multiple instance learning: every label of the image is right somewhere.

    Source: Pathak, Shelhamer, Long, Darrell: Fully convolutional multi-class multiple instance learning,
    ICLR workshop 2015 (arXiv 1412.7144).

    i_l  = argmax_i q_i(l)                             the pixel where l is most likely
    loss = -(1/|z|) sum_{l in z} log q_{i_l}(l)        nothing is asked of the other pixels
    """

    def image_loss(self, k, f, diff, bottom):
        labels = self.present(k, bottom)
        log_q = log_softmax(finite(f))
        pixels = log_q[labels].argmax(axis=1)
        diff[...] = 0
        for l, i in zip(labels, pixels):                # two labels may share a pixel
            diff[:, i] += np.exp(log_q[:, i]) / labels.size
            diff[l, i] -= 1 / labels.size
        return -log_q[labels, pixels].mean(dtype=np.float64)


class MILBaseLossLayer(LossLayer):
    """Multiple instance learning with a smooth maximum over the pixels.

    Source: Pinheiro, Collobert: From image-level to pixel-level labeling with convolutional networks,
    CVPR 2015. There an image has one label. Here the labels of an image share its mass equally. The background is
    one of them, because every image of VOC shows it.

    s(l) = (1/r) log mean_i exp(r f_i(l))              r = 5: between mean (0) and maximum (inf)
    P(l) = softmax(s)_l
    loss = -(1/|z|) sum_{l in z} log P(l)

    Inference weighs every pixel by P: see ccnn.supervision.baselines.image_level_prior.

    param_str  {"r": 5}
    """

    SETTINGS = {"r": Setting(POSITIVE, 5, "sharpness of the maximum: 0 is the mean, inf the maximum")}

    def image_loss(self, k, f, diff, bottom):
        labels = self.present(k, bottom)
        r = self.settings["r"]
        s = log_mean_exp(finite(f), r)
        log_P = log_softmax(s)
        target = np.zeros(len(f))
        target[labels] = 1 / labels.size
        share = np.exp(r * (f - s[:, None])) / f.shape[1]         # ds(l) / df_i(l)
        diff[...] = (np.exp(log_P) - target)[:, None] * share
        return -log_P[labels].mean()
