"""The methods of the league, and the knobs that each may choose."""

from typing import NamedTuple

from flanp import compression, oort, patience, selection, solvers, work
from flanp.league.scenarios import Setting
from flanp.method import Method, auto
from flanp.participation import Everyone, FastestK, Growing, RandomK
from flanp.stopping import LossNoise
from flanp.work import Work

TAUS = (1, 2, 5, 10, 20)
ETAS = tuple(2.0 ** (k / 4) for k in range(-40, 13))


QUICK = (
    "FedAvg",
    "FedGATE",
    "FedNova, speed-matched",
    "FedBuff",
    "Ringmaster",
    "CA2FL",
    "FLANP, as published",
    "FLANP",
    "FLANP, no idle",
    "memory, k fastest",
    "auto",
    "tracking",
)
"""The methods of a quick league."""


class Entry(NamedTuple):
    """One method of the league."""

    group: str
    method: Method
    knobs: dict[str, tuple[float, ...]]


def entries(setting: Setting, step: float) -> dict[str, Entry]:
    """Return the methods by name; `step` is the median client's step with an exchange."""
    N, batch = setting.clients, setting.batch
    eta, ks = 0.25, tuple(k for k in (2, 5, 10, 20, 50) if k < N)
    n0s = tuple(n for n in (1, 2, 4, 8, 16, 32) if n <= N // 2)
    seconds = tuple(step * 2.0**k for k in range(-3, 8))
    sizes = (2, 5, 10, 30, 100)

    def equal(tau: int = 5) -> Work:
        return work.Equal(tau=tau, batch=batch)

    gate, avg, everyone = solvers.FedGATE(eta), solvers.FedAvg(eta), Everyone()
    flanp = Method(gate, Growing(n0=4), LossNoise(), equal())
    every = {"solver.eta": ETAS, "work.tau": TAUS}
    growing = every | {"participation.n0": n0s, "participation.growth": (1.5, 2.0, 4.0)}
    some = every | {"participation.k": ks}
    remembering = {"solver.rho": (0.1, 0.3, 1.0)}

    def alone(solver: solvers.AsyncSolver) -> Method:
        return Method(solver, everyone, work=equal(1))

    return {
        "FedAvg": Entry("synchronous", Method(avg, everyone, work=equal()), every),
        "FedGATE": Entry("synchronous", Method(gate, everyone, work=equal()), every),
        "SCAFFOLD, random k": Entry(
            "synchronous", Method(solvers.Scaffold(eta), RandomK(10), work=equal()), some
        ),
        "FedNova, speed-matched": Entry(
            "synchronous",
            Method(solvers.FedNova(eta), everyone, work=work.SpeedMatched(tau=2, batch=batch)),
            every | {"work.limit": (2, 3, 5, 10)},
        ),
        "FedProx, partial work": Entry(
            "synchronous",
            Method(solvers.FedProx(eta, rho=0.1), everyone, work=work.Partial(tau=5, batch=batch)),
            every | {"work.quantile": (0.1, 0.25, 0.5, 0.75)},
        ),
        "deadline": Entry(
            "synchronous",
            Method(gate, everyone, work=equal(), patience=patience.Deadline(4 * step, quorum=0.1)),
            every | {"patience.seconds": seconds},
        ),
        "over-selection": Entry(
            "synchronous",
            Method(avg, RandomK(10, over=1.3), work=equal(), patience=patience.Quorum(1 / 1.3)),
            some,
        ),
        "FedCS": Entry(
            "synchronous",
            Method(avg, selection.FedCS(deadline=4 * step), work=equal()),
            every | {"participation.deadline": seconds},
        ),
        "TiFL": Entry("synchronous", Method(avg, selection.TiFL(k=5), work=equal()), some),
        "Oort": Entry(
            "synchronous",
            Method(avg, oort.Oort(k=10), work=equal(), patience=patience.Quorum(1 / 1.3)),
            some,
        ),
        "FedAsync": Entry(
            "asynchronous",
            alone(solvers.FedAsync(eta)),
            every | {"solver.alpha": (0.05, 0.1, 0.3, 0.6)},
        ),
        "FedBuff": Entry(
            "asynchronous", alone(solvers.FedBuff(eta, K=10)), every | {"solver.K": sizes}
        ),
        "Rennala": Entry(
            "asynchronous", alone(solvers.Rennala(eta, S=10)), every | {"solver.S": sizes}
        ),
        "Ringmaster": Entry(
            "asynchronous", alone(solvers.Ringmaster(eta, R=50)), every | {"solver.R": sizes}
        ),
        "Ringleader": Entry("asynchronous", alone(solvers.Ringleader(eta)), every),
        "CA2FL": Entry(
            "asynchronous", alone(solvers.CA2FL(eta, K=10)), every | {"solver.K": sizes}
        ),
        "IAG": Entry("asynchronous", alone(solvers.IAG(eta)), every),
        "FLANP, as published": Entry(
            "FLANP",
            Method(gate, Growing(n0=1), LossNoise(), equal(10)),
            {"solver.eta": ETAS},
        ),
        "FLANP": Entry("FLANP", flanp, growing),
        "FLANP, no idle": Entry(
            "FLANP",
            Method(gate, Growing(n0=4), LossNoise(), work.SpeedMatched(tau=2, batch=batch)),
            growing | {"work.limit": (2, 3, 5, 10)},
        ),
        "FLANP + deadline": Entry(
            "FLANP",
            Method(
                gate,
                Growing(n0=4),
                LossNoise(),
                equal(),
                patience.Deadline(4 * step, quorum=0.5),
            ),
            growing | {"patience.seconds": seconds},
        ),
        "FLANP + over-selection": Entry(
            "FLANP",
            Method(gate, Growing(n0=4), LossNoise(), equal(), patience.Quorum(0.8)),
            growing | {"patience.share": (0.5, 0.7, 0.8, 0.9)},
        ),
        "FLANP + compression": Entry(
            "FLANP",
            Method(
                solvers.FedGATE(eta, compression=compression.QSGD(bits=8)),
                Growing(n0=4),
                LossNoise(),
                equal(),
            ),
            growing,
        ),
        "FLANP, asynchronous inside": Entry(
            "FLANP",
            Method(solvers.CA2FL(eta, K=5), Growing(n0=8), LossNoise(), equal(1)),
            every | {"solver.K": (2, 5, 10, 20), "participation.n0": n0s},
        ),
        "FLANP + memory": Entry(
            "ours",
            Method(solvers.Memory(eta), Growing(n0=8), LossNoise(), equal(1)),
            growing | remembering,
        ),
        "memory, k fastest": Entry(
            "ours",
            Method(solvers.Memory(eta), FastestK(min(8, N)), work=equal(1)),
            some | remembering,
        ),
        "auto": Entry("ours", auto(eta, batch), {"solver.eta": ETAS}),
        "tracking": Entry(
            "ours",
            alone(solvers.Tracking(eta)),
            every | {"solver.cap": (3.0, 10.0, 30.0), "solver.rho": (0.05, 0.1, 0.3, 1.0)},
        ),
    }
