"""What travels between the server and a client that runs the full method."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from flanp import solvers
from flanp.describe import describe
from flanp.flower.vectors import Names
from flanp.solvers import Solver

TRAIN, EVALUATE, PROFILE = "train", "evaluate", "query.profile"
SAMPLES, SECONDS, BUSY = "num-examples", "seconds-per-step", "seconds-busy"


class Task(NamedTuple):
    """What a client is asked to do in a round; it travels as JSON."""

    number: int
    """Rounds done before this one."""
    tau: int
    eta: float
    batch: int | None
    seed: int
    solver: dict[str, Any]
    epoch: int
    """Counts the starts of the solver: a client's state of another epoch is void."""
    mean_of: int
    """The round whose mean message comes along, for the client to finish it; or -1."""
    measure: bool
    """Whether to return the loss and gradient at w."""

    def config(self) -> ConfigRecord:
        """Return the task as a record."""
        return ConfigRecord({"server-round": self.number + 1, "flanp": json.dumps(self._asdict())})


class Answer(NamedTuple):
    """What the server makes of a client's reply."""

    s: float
    m: np.ndarray
    g: np.ndarray | None
    loss: float
    within: float
    """sum over the two halves h of the samples of s_h ||g_h - g_i||^2."""
    applied: int
    """How many mean messages the client's state has seen in this epoch."""
    seconds: float
    """Seconds per local step."""
    busy: float
    """Seconds that it worked in this round, as far as is known."""
    metrics: MetricRecord


class Profile(NamedTuple):
    """What a reply says of the client."""

    s: float
    seconds: float
    """Seconds per local step."""
    name: str | None = None


class BadReply(ValueError):
    """A reply that cannot be used."""


def task_content(
    w: ArrayRecord, task: Task, server: Any, mean: np.ndarray | None, extra: ConfigRecord
) -> RecordDict:
    """Return the content of a message; arrays that several messages share travel once."""
    vectors = {
        name: Array(np.asarray(v))
        for name, v in (("server", server), ("mean", mean))
        if isinstance(v, np.ndarray)
    }
    config = ConfigRecord({**extra, **task.config()})
    return RecordDict({"arrays": w, "flanp": ArrayRecord(vectors), "config": config})


def read_task(content: RecordDict) -> tuple[Task, Any, np.ndarray | None]:
    """Return the task, the server's state and the mean message of an earlier round."""
    config = content.config_records["config"]
    if "flanp" not in config:
        raise BadReply("this client speaks with the strategy flanp.flower.Flanp only")
    task = Task(**json.loads(str(config["flanp"])))
    vectors = content.array_records["flanp"]
    server = vectors["server"].numpy() if "server" in vectors else ()
    mean = vectors["mean"].numpy() if "mean" in vectors else None
    return task, server, mean


def answer_content(m: np.ndarray, g: np.ndarray | None, numbers: Mapping[str, float]) -> RecordDict:
    """Return the content of a reply."""
    vectors = {"m": Array(m)} | ({} if g is None else {"g": Array(g)})
    return RecordDict({"arrays": ArrayRecord(vectors), "metrics": MetricRecord({**numbers})})


def read_answer(content: RecordDict, names: Names, measure: bool) -> Answer:
    """Return a reply's answer; raise BadReply where it is malformed."""
    vectors, metrics = _only(content, ArrayRecord), _only(content, MetricRecord)
    missing = {"m", "g"} - vectors.keys() if measure else {"m"} - vectors.keys()
    if missing:
        raise BadReply("the reply is not one of flanp.flower.client")
    m, g = (_vector(vectors, name, names.size) for name in ("m", "g"))
    assert m is not None
    return Answer(
        s=positive(metrics, SAMPLES),
        m=m,
        g=g,
        loss=number(metrics, "loss", math.nan),
        within=number(metrics, "within", 0.0),
        applied=int(number(metrics, "applied", 0.0)),
        seconds=seconds_per_step(content, None),
        busy=positive(metrics, BUSY),
        metrics=metrics,
    )


def read_profile(content: RecordDict) -> Profile:
    """Return what a client's reply, to a probe or a task, says of it."""
    metrics = _only(content, MetricRecord)
    name = str(int(number(metrics, "client", None))) if "client" in metrics else None
    return Profile(positive(metrics, SAMPLES), seconds_per_step(content, None), name)


def read_metrics(content: RecordDict, weight: str) -> MetricRecord:
    """Return a reply's metrics, which must say how much the client counts."""
    metrics = _only(content, MetricRecord)
    positive(metrics, weight)
    return metrics


def seconds_per_step(content: RecordDict, otherwise: float | None) -> float:
    """Return the seconds per local step that a reply reports."""
    metrics = _only(content, MetricRecord)
    if SECONDS not in metrics and otherwise is not None:
        return otherwise
    return positive(metrics, SECONDS)


def read_model(
    content: RecordDict, names: Names, weight: str, w: np.ndarray | float, seconds: float
) -> Answer:
    """Return what a plain FedAvg client's local model w_i says: the update w - w_i."""
    arrays, metrics = _only(content, ArrayRecord), _only(content, MetricRecord)
    try:
        update = _finite(w - names.ravel(arrays))
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise BadReply(str(error)) from error
    loss = next((metrics[k] for k in ("loss", "train_loss", "train-loss") if k in metrics), None)
    return Answer(
        s=positive(metrics, weight),
        m=update,
        g=update,
        loss=float(loss) if isinstance(loss, int | float) else math.nan,
        within=0.0,
        applied=0,
        seconds=seconds_per_step(content, otherwise=seconds),
        busy=seconds,
        metrics=metrics,
    )


def describe_solver(solver: Solver) -> dict[str, Any]:
    """Return a solver's name and parameters; its step sizes come with each task."""
    fields = describe(solver)
    if getattr(solvers, fields["name"], None) is not type(solver):
        raise ValueError(f"{fields['name']} is not one of the solvers that clients know")
    del fields["schedule"]
    return fields


def solver_of(fields: dict[str, Any]) -> Solver:
    """Return the solver of a description."""
    kind = getattr(solvers, fields["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, Solver)):
        raise BadReply(f"this client has no solver {fields['name']!r}: install the same flanp")
    return kind(**{name: value for name, value in fields.items() if name != "name"})


def positive(metrics: MetricRecord, name: str) -> float:
    """Return a metric that must be a positive finite number."""
    value = number(metrics, name, None)
    if value <= 0:
        raise BadReply(f"{name} = {value}")
    return value


def number(metrics: MetricRecord, name: str, default: float | None) -> float:
    """Return a metric that must be a finite number."""
    value = metrics.get(name, default)
    if not isinstance(value, int | float):
        raise BadReply(f"no number {name!r} in the metrics")
    if not math.isfinite(value) and name in metrics:
        raise BadReply(f"{name} = {value}")
    return float(value)


def _only(content: RecordDict, kind: type[Any]) -> Any:
    found = [record for record in content.values() if isinstance(record, kind)]
    if len(found) != 1:
        raise BadReply(f"{len(found)} records of type {kind.__name__}; there must be one")
    return found[0]


def _vector(vectors: ArrayRecord, name: str, size: int) -> np.ndarray | None:
    if name not in vectors:
        return None
    try:
        vector = vectors[name].numpy()
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise BadReply(f"{name} is no array: {error}") from error
    if vector.shape != (size,) or not np.issubdtype(vector.dtype, np.floating):
        raise BadReply(f"{name} is {vector.dtype}{list(vector.shape)}, not {size} floats")
    return _finite(vector)


def _finite(vector: np.ndarray) -> np.ndarray:
    if not np.isfinite(vector).all():
        raise BadReply("the arrays hold NaN or infinity")
    return vector
