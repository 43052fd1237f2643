"""The worlds and the problems of the league."""

from dataclasses import dataclass, field, replace

from flanp import availability, data, network, problems, speeds
from flanp.availability import ALWAYS, Availability
from flanp.network import FREE, Network
from flanp.speeds import Speeds
from flanp.speeds.changes import Drift

MODEL_BYTES = 5e6
"""What a model is taken to weigh where its transfer counts: that of a small vision network."""


@dataclass(frozen=True)
class Scenario:
    """What clients are like."""

    name: str
    words: str
    speeds: Speeds
    network: Network = FREE
    availability: Availability = ALWAYS
    rows: tuple[tuple[str, float], ...] = ()
    """What differs in the linear data."""
    split: data.Split = field(default=data.IID())
    """How the images are dealt out."""


@dataclass(frozen=True)
class Setting:
    """What is learnt, and how far."""

    name: str
    words: str
    clients: int
    problem: problems.Problem
    batch: int | None
    targets: tuple[float, ...] | None
    """Levels of the training loss, of which the last that can be reached is tuned for; None: the
    statistical accuracy."""
    seeds: int
    tuning_seeds: int
    horizon: float
    """How many steps, and exchanges, of the slowest client a run may take."""
    weight: float
    """Bytes of a model."""

    def source(self, scenario: Scenario) -> data.Source:
        """Return the data of a scenario."""
        if self.targets is None:
            return data.Synthetic(self.clients, **dict(scenario.rows))  # type: ignore[arg-type]
        return data.Digits(clients=self.clients, split=scenario.split)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("paper", "speeds uniform on [50, 500], exchanges free", speeds.Uniform()),
        Scenario("exponential", "speeds exponential, exchanges free", speeds.Exponential()),
        Scenario(
            "exchange",
            "speeds uniform on [50, 500], an exchange costs ten median steps",
            speeds.Uniform(),
            network.Exchange(steps=10.0),
        ),
        Scenario(
            "devices",
            "phones as measured, a model of 5 MB over their links",
            speeds.Devices(),
            network.Phones(),
        ),
        Scenario(
            "unknown",
            "speeds uniform on [50, 500], unknown, noisy and drifting",
            speeds.Uniform(known=False, jitter=0.3, change=Drift(sigma=0.3, period=200.0)),
        ),
        Scenario(
            "heavy tail",
            "speeds with a Pareto tail of shape 1.2, an exchange costs a median step",
            speeds.Pareto(shape=1.2),
            network.Exchange(steps=1.0),
        ),
        Scenario(
            "dropouts",
            "speeds exponential, a fifth of all tasks is lost midway",
            speeds.Exponential(),
            availability=availability.Always(dropouts=0.2),
        ),
        Scenario(
            "unequal",
            "speeds uniform on [50, 500], clients hold unequally many samples",
            speeds.Uniform(),
            rows=(("spread", 1.0),),
            split=data.Unequal(sigma=1.0),
        ),
        Scenario(
            "skew",
            "speeds uniform on [50, 500], each client's data differ (Dirichlet 0.3)",
            speeds.Uniform(),
            rows=(("shift", 0.3),),
            split=data.Dirichlet(alpha=0.3),
        ),
        Scenario(
            "slow differ",
            "speeds uniform on [50, 500], the slow 30% hold what the others do not",
            speeds.Uniform(in_order=True),
            rows=(("shift", 1.0), ("apart", 0.3)),
            split=data.Apart(share=0.3, labels=3),
        ),
    )
}

CONVEX = Setting(
    "convex",
    "linear regression, 100 clients, to the statistical accuracy of all data",
    clients=100,
    problem=problems.LinearRegression(),
    batch=None,
    targets=None,
    seeds=10,
    tuning_seeds=3,
    horizon=60.0,
    weight=4 * 20,
)
NETWORK = Setting(
    "network",
    "a network of 64-32-10 on digits, 40 clients, to training losses of 0.5, 0.2 and 0.1",
    clients=40,
    problem=problems.MLP(widths=(32,)),
    batch=10,
    targets=(0.5, 0.2, 0.1),
    seeds=5,
    tuning_seeds=2,
    horizon=100.0,
    weight=4 * (64 * 32 + 32 + 32 * 10 + 10),
)
QUICK_SCENARIOS = ("paper", "exponential", "exchange", "slow differ")


def quick(setting: Setting) -> Setting:
    """Return a small version of a setting, for a look."""
    convex = setting.targets is None
    return replace(
        setting,
        clients=40 if convex else 20,
        targets=None if convex else (0.5, 0.2),
        seeds=3 if convex else 2,
        horizon=40.0,
        tuning_seeds=1,
    )


SETTINGS = {setting.name: setting for setting in (CONVEX, NETWORK)}
