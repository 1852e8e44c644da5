"""Training: features of a frozen backbone (`features`), the linear head in NumPy (`head`), Caffe (`caffe_training`).

`snapshots` and `caffe_log` read what a training writes; both trainers write Caffe's files and Caffe's log.
"""
