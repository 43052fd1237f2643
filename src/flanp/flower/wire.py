"""What travels between the server and a client that runs the full method."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from flanp.flower.packing import unpack
from flanp.flower.vectors import Names
from flanp.trees import Tree, leaves

SERVER, MEAN, CLIENT = "server", "mean", "client"
TRAIN, EVALUATE, PROFILE = "train", "evaluate", "query.profile"
FIRST = "first"
PROBE_STEPS = 3
"""Local steps that a probe of the speed takes; the first, which may compile, is not timed."""
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
    generation: int
    """Counts the starts of the solver: a client's state of another generation is void."""
    mean_of: int
    """The round whose mean message comes along, for the client to finish it; or -1."""
    step: tuple[float, ...] | None
    """The numbers of that round's end."""
    measure: bool
    """Whether to return the loss and gradient at w."""
    first: bool = False
    """Whether to return the direction of the first local step as well."""

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
    """How many mean messages the client's state has seen in this generation."""
    seconds: float
    """Seconds per local step."""
    busy: float
    """Seconds that it worked in this round, as far as is known."""
    metrics: MetricRecord
    sent: int
    """Bytes of the message."""
    first: np.ndarray | None = None
    """The direction of the first of several local steps, where it was asked for."""


class Profile(NamedTuple):
    """What a reply says of the client."""

    s: float
    seconds: float
    """Seconds per local step."""
    name: str | None = None
    busy: float = 0.0
    """Seconds that it worked, as far as it says so."""

    def beside(self, seconds: float, message_type: str) -> float:
        """Return what a reply that came after so many seconds took beside local steps."""
        work = PROBE_STEPS * self.seconds if message_type == PROFILE else self.busy
        return max(0.0, seconds - work)


class BadReply(ValueError):
    """A reply that cannot be used."""


def task_content(
    w: ArrayRecord,
    task: Task,
    server: Tree,
    mean: np.ndarray | None,
    extra: ConfigRecord,
    own: Tree = (),
) -> RecordDict:
    """Return the content of a message; `own` is the client's state, where the server keeps it."""
    states = leaves(server, SERVER) | leaves(own, CLIENT)
    vectors = {name: Array(np.asarray(v)) for name, v in states.items()}
    if mean is not None:
        vectors[MEAN] = Array(mean)
    config = ConfigRecord({**extra, **task.config()})
    return RecordDict({"arrays": w, "flanp": ArrayRecord(vectors), "config": config})


def read_task(content: RecordDict) -> tuple[Task, dict[str, np.ndarray]]:
    """Return the task and the arrays that came with it: the server's state, a mean message."""
    config = content.config_records["config"]
    if "flanp" not in config:
        raise BadReply("this client speaks with the strategy flanp.flower.Flanp only")
    vectors = content.array_records["flanp"]
    return Task(**json.loads(str(config["flanp"]))), arrays_by_name(vectors)


def arrays_by_name(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def answer_content(
    m: Mapping[str, np.ndarray],
    g: np.ndarray | None,
    numbers: Mapping[str, float],
    first: np.ndarray | None = None,
) -> RecordDict:
    """Return the content of a reply; m is the message as it was packed."""
    beside = {"g": g, FIRST: first}
    vectors = {name: Array(a) for name, a in {**m, **beside}.items() if a is not None}
    return RecordDict({"arrays": ArrayRecord(vectors), "metrics": MetricRecord({**numbers})})


def read_answer(content: RecordDict, names: Names, measure: bool) -> Answer:
    """Return a reply's answer; raise BadReply where it is malformed."""
    vectors, metrics = _only(content, ArrayRecord), _only(content, MetricRecord)
    try:
        arrays = arrays_by_name(vectors)
        g, first = arrays.pop("g", None), arrays.pop(FIRST, None)
        m = unpack(arrays, names.size)
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise BadReply(f"the reply is not one of flanp.flower.client: {error}") from error
    if measure and g is None:
        raise BadReply("the reply is not one of flanp.flower.client: it has no gradient")
    for name, vector in (("m", m), ("g", g), (FIRST, first)):
        if vector is not None:
            _check_vector(name, vector, names.size)
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
        sent=sum(a.nbytes for a in arrays.values()) + (0 if first is None else first.nbytes),
        first=first,
    )


def read_profile(content: RecordDict) -> Profile:
    """Return what a client's reply, to a probe or a task, says of it."""
    metrics = _only(content, MetricRecord)
    name = str(int(number(metrics, "client", None))) if "client" in metrics else None
    busy = number(metrics, BUSY, 0.0)
    return Profile(positive(metrics, SAMPLES), seconds_per_step(content, None), name, busy)


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
        sent=update.nbytes,
    )


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


def _check_vector(name: str, vector: np.ndarray, size: int) -> None:
    if vector.shape != (size,) or not np.issubdtype(vector.dtype, np.floating):
        raise BadReply(f"{name} is {vector.dtype}{list(vector.shape)}, not {size} floats")
    _finite(vector)


def _finite(vector: np.ndarray) -> np.ndarray:
    if not np.isfinite(vector).all():
        raise BadReply("the arrays hold NaN or infinity")
    return vector
