"""From a photograph to its mask: model files, the engines that run a net, export to ONNX."""
from ccnn.inference.predict import find_model, load_model, segment

__all__ = ["find_model", "load_model", "segment"]
