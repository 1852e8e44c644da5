"""Data sets (a folder of images and what is known of each, VOC and SBD, areas of the background) and training samples.

Sample t is a pure function of the settings and t, so a resumed training sees the samples that an
uninterrupted one would have seen.
"""
from ccnn.data.dataset import DataSet

__all__ = ["DataSet"]
