"""PyTorch trains the nets and solvers of Caffe: `ccnn train SOLVER --engine torch`.

    layers       every type of layer as a module: one entry per type
    net          a net of these, its weights in and out
    optimisers   Caffe's SGD and Adam
    reader       samples, read ahead
    devices      where the net computes, and how precisely
    processes    the processes that torchrun starts
    training     the steps, the log, the snapshots

Nets, solvers, weights, snapshots and the log are Caffe's files: each of the two can go on where the other stopped.
These modules need PyTorch, and nothing here needs Caffe.
"""
