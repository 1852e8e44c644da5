"""Nets and solvers as Caffe's text files, written from tables; backbones as records; weights in Caffe's formats."""
from ccnn.nets.backbones import VGG16

__all__ = ["VGG16"]
