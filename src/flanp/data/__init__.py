"""Data for federated training: sources, splits, and your own arrays."""

from flanp.data.datasets import from_datasets
from flanp.data.federated import FederatedData, from_arrays, from_clients
from flanp.data.leaf import FEMNIST, MissingData
from flanp.data.sources import CIFAR10, CSV, MNIST, Digits, Source, Synthetic
from flanp.data.splits import IID, Apart, ByLabel, Dirichlet, Split, Unequal

__all__ = [
    "CIFAR10",
    "CSV",
    "FEMNIST",
    "IID",
    "MNIST",
    "Apart",
    "ByLabel",
    "Digits",
    "Dirichlet",
    "FederatedData",
    "MissingData",
    "Source",
    "Split",
    "Synthetic",
    "Unequal",
    "from_arrays",
    "from_clients",
    "from_datasets",
]
