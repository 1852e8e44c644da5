"""Training: cached features, the linear head in NumPy, runs of Caffe that are checked and watched, snapshots, logs."""
