"""What every loss layer shares: blobs in and out, and the loss weight. The loss is a class of ccnn.supervision."""
import caffe
from reporting import Reporting

from ccnn.supervision.losses import Loss


class LossLayer(Reporting, caffe.Layer):
    """A loss of ccnn.supervision.losses as a layer: a subclass names its class in `Loss`.

    bottom[k]  the loss's blobs, scores first
    top[0]     loss, the mean over the images
    top[1]     optional, if the loss has diagnostics: N x 4
    param_str  JSON: the settings

    UserError ends the training: a wrong setting, NaN scores. `caffe train` then prints the error's line and stops; the
    snapshots that it wrote stay as they are.
    """

    Loss = Loss

    def setup(self, bottom, top):
        self.loss = self.Loss(self.param_str, len(bottom), len(top), type(self).__name__, caffe.solver_count())

    def reshape(self, bottom, top):
        shapes = [bottom[i].data.shape for i in range(len(bottom))]
        if shapes != self.loss.shapes:                  # Caffe calls reshape before every forward pass
            self.loss.fit(shapes)
            self.probe = slice(None, None, bottom[0].count // 32 + 1)
            top[0].reshape(1)
            if len(top) > 1:
                top[1].reshape(shapes[0][0], 4)

    def forward(self, bottom, top):
        # The gradient goes where Caffe will want it. A copy would cost as much time as the solver.
        diff = bottom[0].diff
        blobs = [bottom[i].data for i in range(len(bottom))]
        top[0].data[...] = self.loss.compute(blobs, diff, top[1].data if len(top) > 1 else None)
        self.written = diff.reshape(-1)[self.probe].tobytes()

    def backward(self, top, propagate_down, bottom):
        if propagate_down[0]:
            diff = bottom[0].diff.reshape(-1)
            if diff[self.probe].tobytes() != self.written:      # scaled by an earlier backward pass, or written over
                self.forward(bottom, top)
            self.written = None
            factor = top[0].diff.item() * self.loss.factor      # the loss weight arrives in top
            if factor != 1:
                diff *= factor
        for i in range(1, len(bottom)):
            if propagate_down[i]:                       # with force_backward: the supervision has no gradient
                bottom[i].diff[...] = 0
