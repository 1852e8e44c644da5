"""Training with Caffe: cached features, runs that are checked, watched and continued, snapshots, Caffe's log."""
