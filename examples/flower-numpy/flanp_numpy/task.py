"""Softmax regression on the handwritten digits, in NumPy."""

import numpy as np
from sklearn.datasets import load_digits

CLASSES = 10


def load_data(partition=0, partitions=1):
    """Return (a partition of the training samples, the test samples)."""
    x, y = load_digits(return_X_y=True)
    x = (x / 8 - 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:-300], order[-300:]
    mine = train[partition::partitions]
    return (x[mine], y[mine]), (x[test], y[test])


def start_model():
    return {"W": np.zeros((64, CLASSES), np.float32), "b": np.zeros(CLASSES, np.float32)}


def gradient(params, batch):
    """Return the mean cross-entropy and its gradient."""
    x, y = batch
    logits = x @ params["W"] + params["b"]
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    loss = float(-np.log(p[rows, y] + 1e-12).mean())
    p[rows, y] -= 1
    return loss, {"W": x.T @ p / len(x), "b": p.mean(axis=0)}


def error(params, batch):
    """Return the share of samples that are classified wrongly."""
    x, y = batch
    return float(np.mean((x @ params["W"] + params["b"]).argmax(axis=1) != y))
