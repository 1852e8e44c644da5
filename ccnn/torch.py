"""The constrained loss for PyTorch.

    from ccnn.torch import ConstrainedLoss, tag_constraints

    loss = ConstrainedLoss()
    for images, present in loader:                              # present: N x L, True where a label is in the image
        value = loss(net(images), tag_constraints(present))     # scores N x L x H x W
        value.backward()

The loss takes one ccnn.Constraints per image. tag_constraints, size_constraints, box_constraints, mask_constraints and
with_known_pixels are the library's functions of these names for a batch of tensors: they return such a list.

The solver runs on the CPU, image by image on all cores; scores may live on any device, in float16, bfloat16, float32 or
float64, in any memory format. The loss is float32 (float64 for float64 scores), as losses are under autocast. Its
gradient is scaled in that precision before it gets the scores' type: a GradScaler saves what float16 would lose.
torch.compile compiles what comes before and after the loss.
"""
import math
from contextlib import contextmanager
from functools import lru_cache

try:
    import torch
except ImportError as error:
    raise ImportError(f"ccnn.torch needs PyTorch ({error}); install it, for example with: pip install torch") from None

import numpy as np

import ccnn
from ccnn.crf.dense import NEGLIGIBLE, dense_crf_batch
from ccnn.solver.constraints import VOID
from ccnn.supervision import constraint_builder as supervision


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
        constraints = list(constraints)
        for k, c in enumerate(constraints):
            if not isinstance(c, ccnn.Constraints):
                raise ValueError(f"image {k}: need ccnn.Constraints, which tag_constraints makes of a tensor; "
                                 f"got {type(c).__name__}")
        if len(constraints) != len(scores):
            raise ValueError(f"need one set of constraints per image, {len(scores)}; got {len(constraints)}")
        return _Divergence.apply(scores, constraints, self)

    def solve(self, scores, constraints):
        """(mean of the images' losses, its gradient: an array like the scores). Keeps the solutions."""
        wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        f = np.ascontiguousarray(wide.detach().numpy() if wide.is_cpu else wide.numpy(force=True))     # often no copy
        diff = np.empty_like(f)
        images, labels = f.shape[:2]
        self.solutions = []                 # the last call's keep the solver's memory
        self.solutions = ccnn.maximize_batch(f.reshape(images, labels, -1), constraints,
                                             diff=diff.reshape(images, labels, -1), weight=1 / images,
                                             **self.options)
        for k, s in enumerate(self.solutions):
            if s.status == "infeasible":
                raise ValueError(f"the constraints of image {k} contradict each other; make a hard row soft (beta)")
        return math.fsum(s.loss for s in self.solutions) / images, diff     # type: ignore[misc]  # no loss is None


class _Divergence(torch.autograd.Function):
    """The loss and, computed with it, its gradient.

    After the solver the caches are cold, and every call into PyTorch costs some 20 us: there are as few as possible.
    """

    @staticmethod
    def forward(ctx, scores, constraints, loss):
        value, diff = loss.solve(scores, constraints)
        gradients = torch.from_numpy(diff)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(scores)
            ctx.gradients, ctx.problem, ctx.scores_type = gradients, (loss, constraints), (scores.device, scores.dtype)
        value = torch.from_numpy(np.array(value, diff.dtype))           # half the time of torch.tensor
        return value if scores.is_cpu else value.to(scores.device)

    @staticmethod
    def backward(ctx, slope):
        if torch.is_grad_enabled():         # create_graph=True
            raise RuntimeError("ConstrainedLoss has no second derivatives: its gradient holds p fixed")
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:               # a second pass through a retained graph: the first gave them away
            loss, constraints = ctx.problem
            gradients = torch.from_numpy(loss.solve(ctx.saved_tensors[0], constraints)[1])
        slope = slope.item()
        if slope != 1:                      # in place: a copy would cost a third of the solver's time
            gradients.mul_(slope)
        return gradients.to(*ctx.scores_type), None, None


def dense_crf(images, scores, preset="authors", negligible=NEGLIGIBLE, threads=0):
    """ccnn.dense_crf for every image of a batch, on the CPU: marginals like the scores, without gradients.

    images : N x 3 x H x W uint8, RGB
    scores : N x L x H x W floats, on any device
    """
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        raise ValueError(f"images must be N x 3 x H x W uint8; got {images.dtype} of shape {tuple(images.shape)}")
    if scores.dim() != 4 or not scores.is_floating_point():
        raise ValueError(f"scores must be N x L x H x W floats; got {scores.dtype} of shape {tuple(scores.shape)}")
    f = (scores if scores.dtype in (torch.float32, torch.float64) else scores.float()).numpy(force=True)
    q = dense_crf_batch(images.permute(0, 2, 3, 1).numpy(force=True), f, preset, negligible, threads)
    return torch.from_numpy(np.stack(q)).to(scores) if q else torch.empty_like(scores)


# The functions of ccnn.supervision for a batch: tensors in, one ccnn.Constraints per image out.

def tag_constraints(present, **bounds):
    """ccnn.tag_constraints for every image of a batch.

    present : N x L, True or 1 where a label is in the image
    """
    return [_from_flags(ccnn.tag_constraints, tuple(bounds.items()), row) for row in _flags("present", present)]


def size_constraints(present, large, **bounds):
    """ccnn.size_constraints for every image of a batch.

    present : N x L, True or 1 where a label is in the image
    large   : N x L, True or 1 where it covers more than a tenth of the image
    """
    rows, large_rows = _flags("present", present), _flags("large", large)
    if len(rows) != len(large_rows):
        raise ValueError(f"present has {len(rows)} images, large has {len(large_rows)}")
    return [_from_flags(ccnn.size_constraints, tuple(bounds.items()), *pair) for pair in zip(rows, large_rows)]


def box_constraints(boxes, shape, labels=21, **bounds):
    """ccnn.box_constraints for every image of a batch.

    boxes : N tensors B x 5, or one N x B x 5; a box is (label, y0, x0, y1, x1), half-open, on the score grid of `shape`
            (H, W); label -1 stands for no box
    """
    constraints = []
    for k, own in enumerate(boxes):
        own = torch.as_tensor(own)
        if not own.numel():
            own = own.reshape(0, 5)
        if own.dim() != 2 or own.shape[1] != 5:
            raise ValueError(f"image {k}: boxes must be B x 5 (label, y0, x0, y1, x1); got shape {tuple(own.shape)}")
        with _naming(k):
            constraints.append(ccnn.box_constraints([box for box in own.tolist() if box[0] != -1], tuple(shape), labels,
                                                    **bounds))
    return constraints


def mask_constraints(masks, labels=21, ignore_index=VOID):
    """ccnn.mask_constraints for every image of a batch.

    masks : N x H x W integers on the score grid: the label of a pixel, ignore_index where it is unknown
    """
    masks = torch.as_tensor(masks)
    if masks.dim() != 3 or masks.is_floating_point() or masks.is_complex():
        raise ValueError(f"masks must be N x H x W integers; got {masks.dtype} of shape {tuple(masks.shape)}")
    constraints = []
    for k, mask in enumerate(masks.detach().long().cpu().numpy()):
        known = mask != ignore_index
        wrong = mask[known & ((mask < 0) | (mask >= labels))]
        if wrong.size:
            raise ValueError(f"image {k}: mask holds label {wrong[0]}; need 0 .. {labels - 1}, or {ignore_index} where "
                             "it is unknown")
        constraints.append(ccnn.mask_constraints(np.where(known, mask, VOID), labels))
    return constraints


def with_known_pixels(constraints, masks, labels=21, mask_share=0.5, ignore_index=VOID):
    """The constraints of every image where the labels of some pixels are known, too.

    masks : as for mask_constraints

    A known pixel has its label, whatever the constraints say. An image of which mask_share or more is known has a full
    mask: its rows are left out.
    """
    constraints, known = list(constraints), mask_constraints(masks, labels, ignore_index)
    if len(constraints) != len(known):
        raise ValueError(f"need one mask per image, {len(constraints)}; got {len(known)}")
    return [supervision.with_known_pixels(*pair, mask_share) for pair in zip(constraints, known)]


@lru_cache(maxsize=1000)
def _from_flags(function, bounds, *rows):
    """Images repeat their tags: their constraints are made once."""
    return function(*(np.frombuffer(row, bool) for row in rows), **dict(bounds))


def _flags(name, tensor):
    """The rows of an N x L tensor of 0 and 1, as bytes."""
    tensor = torch.as_tensor(tensor)
    if tensor.dim() != 2:
        raise ValueError(f"{name} must be N x L, one row per image; got shape {tuple(tensor.shape)}")
    on = tensor == 1
    wrong = tensor[~on & (tensor != 0)]
    if len(wrong):
        raise ValueError(f"{name} must be True or False, 1 or 0; got {wrong[0].item():g}")
    return [row.tobytes() for row in on.cpu().numpy()]


@contextmanager
def _naming(k):
    """Name the image in the message if its constraints cannot be made."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"image {k}: {error}") from None
