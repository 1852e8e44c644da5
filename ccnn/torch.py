"""The constrained loss for PyTorch.

    from ccnn.torch import ConstrainedLoss

    loss = ConstrainedLoss()
    value = loss(scores, [ccnn.tag_constraints(present) for present in tags])    # scores N x L x H x W
    value.backward()

The solver runs on the CPU, image by image on all cores; scores may live on any device, in float16, bfloat16, float32 or
float64, in any memory format. Scores of less than 32 bits are solved in float32.
"""
import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError(f"ccnn.torch needs PyTorch ({error}); install it, for example with: pip install torch") from None

import ccnn


class ConstrainedLoss(torch.nn.Module):
    """Mean over images of mean_i KL(p_i || q_i), p the distribution nearest to q = softmax(scores) that obeys them.

    hardness  p is nearest to softmax(hardness * scores); 1 is the paper's
    method    "newton", or "pga", the paper's projected gradient ascent
    tol       the largest duality gap that counts as solved
    threads   images solved at the same time; 0: as many as there are cores

    The gradient with respect to the scores is (q - p) / (images * pixels), p held fixed. At hardness 1 that is the
    gradient of the optimal value KL + beta' xi too. `solutions` keeps what the last call found, one per image.
    """

    def __init__(self, hardness=1.0, method="newton", tol=1e-6, threads=0):
        super().__init__()
        self.options = {"hardness": hardness, "method": method, "tol": tol, "threads": threads}
        self.solutions = []

    def extra_repr(self):
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())

    @torch.compiler.disable
    def forward(self, scores, constraints):
        """scores N x L x H x W (or N x L x n); constraints: one ccnn.Constraints per image."""
        if scores.dim() < 3 or not scores.is_floating_point():
            raise ValueError(f"scores must be N x L x H x W floats; got {scores.dtype} of shape {tuple(scores.shape)}")
        if len(constraints) != len(scores):
            raise ValueError(f"need one set of constraints per image, {len(scores)}; got {len(constraints)}")
        return _Divergence.apply(scores, constraints, self)


class _Divergence(torch.autograd.Function):
    """The loss and, computed with it, its gradient."""

    @staticmethod
    def forward(ctx, scores, constraints, loss):
        images, labels = scores.shape[:2]
        wide = scores.detach().to("cpu", torch.float64 if scores.dtype == torch.float64 else torch.float32)
        f = wide.reshape(images, labels, -1).contiguous().numpy()
        diff = np.empty_like(f)
        loss.solutions = []                 # the last call's keep the solver's memory
        loss.solutions = ccnn.maximize_batch(f, constraints, diff=diff, **loss.options)
        for k, s in enumerate(loss.solutions):
            if s.status == "infeasible":
                raise ValueError(f"the constraints of image {k} contradict each other; make a hard row soft (beta)")
        if ctx.needs_input_grad[0]:
            gradient = torch.from_numpy(diff).reshape(wide.shape) / images
            ctx.save_for_backward(gradient.to(scores.device, scores.dtype))
        return scores.new_tensor(np.mean([s.loss for s in loss.solutions]))

    @staticmethod
    def backward(ctx, slope):
        gradient, = ctx.saved_tensors
        return slope * gradient, None, None
