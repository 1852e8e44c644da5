"""Kernels, strides and pads of convolutions and poolings, as Caffe's layers say them in several ways."""
from typing import Any


def pair(p: Any, name: str, default: int) -> list[int]:
    """A setting of a convolution or a pooling, along rows and along columns. ValueError: it is along more axes.

    p : ConvolutionParameter or PoolingParameter
    """
    short = name.replace("_size", "")
    if short != "dilation" and (p.HasField(f"{short}_h") or p.HasField(f"{short}_w")):
        return [getattr(p, f"{short}_h"), getattr(p, f"{short}_w")]
    given = getattr(p, name)
    values = [given] if isinstance(given, int) else list(given) or [default]
    if len(values) > 2:
        raise ValueError(f"has a {name} along {len(values)} axes")
    return values * (2 // len(values))
