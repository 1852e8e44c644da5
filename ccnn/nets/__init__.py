"""Nets and solvers as Caffe's text files, written from tables; weights in Caffe's formats; backbones and cues, one
record each.
"""
from ccnn.nets.backbones import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone"]
