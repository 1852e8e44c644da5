"""Every number of the paper that the code knows: this is the one file that holds them.

The nets and solvers have numbers of their own, some of which deviate for a reason; tests compare them with these.
"""
# Section 5: shares of the image. beta is the price of slack.
TAG_BOUNDS = {"fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}

# Section 5, with a_0 as in the supplement (III). A class is large above a share of 0.1; b_l is small_upper.
SIZE_BOUNDS = {"large": 0.1, "fg_lower": 0.1, "small_upper": 0.01, "bg_lower": 0.2, "bg_upper": 0.7}

# Section 6, under the names of Caffe's solver.
TRAINING = {"base_lr": 1e-6, "momentum": 0.99, "iter_size": 1, "max_iter": 60000, "gamma": 0.1, "stepsize": 20000}

# Section 7: numbers of images.
IMAGES = {"train_aug": 10582, "val": 1449}

# Section 7, discussion: the share of a box that takes its label.
BOX_BOUNDS = {"fraction": 0.75}

# The supplement's table (III): a_l, a_0, b_0 and mIoU without CRF, from tags and sizes. The first is the default.
BOUNDS_TRIED = [(0.1, 0.2, 0.7, 40.5),
          (0.2, 0.2, 0.7, 40.6), (0.3, 0.2, 0.7, 40.6), (0.4, 0.2, 0.7, 39.6),
          (0.1, 0.1, 0.7, 40.5), (0.1, 0.3, 0.7, 40.4), (0.1, 0.4, 0.7, 40.5), (0.1, 0.5, 0.7, 40.4),
          (0.1, 0.2, 0.5, 36.6), (0.1, 0.2, 0.6, 38.9), (0.1, 0.2, 0.8, 39.7)]

# Tables 1 and 2 and the text on boxes (val), and table 3 (test; it leaves the background's column out).
# Method | set | with CRF | mIoU, and below it the IoU of every class.
TABLES = """
MIL-FCN                 | val  | no  | 24.9
MIL-Base                | val  | no  | 17.8
    37.0 10.4 12.4 10.8  5.3  5.7 25.2 21.1 25.2  4.8 21.5  8.6 29.1 25.1 23.6 25.5 12.0 28.4  8.9 22.0 11.6
MIL-Base, ILP           | val  | no  | 32.6
    73.2 25.4 18.2 22.7 21.5 28.6 39.5 44.7 46.6 11.9 40.4 11.8 45.6 40.1 35.5 35.2 20.8 41.7 17.0 34.7 30.4
EM-Adapt tags           | val  | no  | 32.0
    65.3 28.2 16.9 27.4 21.1 28.1 45.4 40.5 42.3 13.2 32.1 23.3 38.7 32.0 39.9 31.3 22.7 34.2 22.8 37.0 30.0
EM-Adapt tags           | val  | yes | 33.8
    67.2 29.2 17.6 28.6 22.2 29.6 47.0 44.0 44.2 14.6 35.1 24.9 41.0 34.8 41.6 32.1 24.8 37.4 24.0 38.1 31.6
CCNN tags               | val  | no  | 33.3
    66.3 24.6 17.2 24.3 19.5 34.4 45.6 44.3 44.7 14.4 33.8 21.4 40.8 31.6 42.8 39.1 28.8 33.2 21.5 37.4 34.4
CCNN tags               | val  | yes | 35.3
    68.5 25.5 18.0 25.4 20.2 36.3 46.8 47.1 48.0 15.8 37.9 21.0 44.5 34.5 46.2 40.7 30.4 36.3 22.2 38.8 36.9
EM-Adapt crops          | val  | no  | 34.3
EM-Adapt crops          | val  | yes | 36.0
CCNN crops              | val  | no  | 34.4
CCNN crops              | val  | yes | 36.4
CCNN size               | val  | no  | 40.5
CCNN size               | val  | yes | 42.4
CCNN boxes (CRF unsaid) | val  | no  | 54.0
Boxes, filled (unsaid)  | val  | no  | 52.3
SDS, full               | test | no  | 51.6
       - 63.3 25.7 63.0 39.8 59.2 70.9 61.4 54.9 16.8 45.0 48.2 50.5 51.0 57.7 63.3 31.8 58.7 31.2 55.7 48.5
FCN-8s, full            | test | no  | 62.2
       - 76.8 34.2 68.9 49.4 60.3 75.3 74.7 77.6 21.4 62.5 46.8 71.8 63.9 76.5 73.9 45.2 72.4 37.4 70.9 55.1
Zoomout, full           | test | no  | 64.4
       - 81.9 35.1 78.2 57.4 56.5 80.5 74.0 79.8 22.4 69.6 53.7 74.0 76.0 76.6 68.8 44.3 70.2 40.2 68.9 55.3
DeepLab-CRF, full       | test | yes | 66.4
       - 78.4 33.1 78.2 55.6 65.3 81.3 75.5 78.6 25.3 69.2 52.7 75.2 69.0 79.1 77.6 54.7 78.3 45.1 73.3 56.2
CCNN tags               | test | yes | 35.6
       - 24.2 19.9 26.3 18.6 38.1 51.7 42.9 48.2 15.6 37.2 18.3 43.0 38.2 52.2 40.0 33.8 36.0 21.6 33.4 38.3
CCNN size               | test | yes | 43.3
       - 36.7 23.6 47.1 30.2 40.6 59.5 54.3 51.9 15.9 43.3 34.8 48.2 42.5 59.2 43.1 35.5 45.2 31.4 46.2 42.2
CCNN size, tuned CRF    | test | yes | 45.1
       - 42.3 24.5 56.0 30.6 39.0 58.8 52.7 54.8 14.6 48.4 34.2 52.7 46.9 61.1 44.8 37.4 48.8 30.6 47.7 41.7
"""
