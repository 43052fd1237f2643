"""A small convolutional network on the handwritten digits, in PyTorch."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

CLASSES = 10


class Net(nn.Module):
    """Two convolutions and a linear layer for images of 8 x 8."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, CLASSES),
        )

    def forward(self, x):
        return self.layers(x)


def start_model():
    torch.manual_seed(0)
    return Net()


def load_data(partition=0, partitions=1):
    """Return (a partition of the training samples, the test samples)."""
    x, y = load_digits(return_X_y=True)
    x = (x / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:-300], order[-300:]
    mine = train[partition::partitions]
    return (x[mine], y[mine]), (x[test], y[test])


def loss(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def error(model, batch):
    """Return the share of samples that are classified wrongly."""
    x, y = batch
    return float((model(x).argmax(dim=1) != y).float().mean())
