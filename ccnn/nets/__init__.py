"""Nets and solvers as Caffe's text files, written from tables; backbones as records; weights in Caffe's formats."""
from ccnn.nets.backbones import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone"]
