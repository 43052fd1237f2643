"""What clients do in a method: the part that synchronous and asynchronous ones share."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

from flanp.checks import calling
from flanp.compression import Compression, Exact
from flanp.parts import Part, Within
from flanp.schedules import Constant, Schedule
from flanp.solvers.local import SGD, LocalStep
from flanp.stage import Stage
from flanp.trees import Number, Tree, Vector, leaves

StepSize = Annotated[float, Within(1e-9, 1e9)]
"""Of a step that float32 can still tell from none, and from one to infinity."""


class ClientState(NamedTuple):
    """What a client keeps from round to round."""

    own: Tree
    """The solver's state."""
    error: Tree
    """What compression has left out of its messages."""


class Posted(NamedTuple):
    """What a client keeps of a round until the mean message is known."""

    m_i: Tree
    """Its message, if the solver has a state at the clients."""
    error: Tree


@dataclass(frozen=True)
class Training(Part):
    """The clients' side of a federated algorithm, in the paper's letters.

    Client i starts at the global model, w_i = w, and does tau_i times w_i <- w_i - eta d_i with
    d_i = `direction`. It sends its `message`, made of Delta_i = (w - w_i) / eta.

    All of the state goes in and out. It is any tree of arrays at the server and at each client;
    the empty tuple, if there is none. A model, a message and a correction are flat vectors. The
    methods use arithmetic that NumPy's and JAX's arrays share: they run on the latter in the
    simulator, on the former in a process on a real machine. `direction` must treat each
    coordinate by itself, for the simulator shows it the model part by part.
    """

    eta: StepSize
    """Step size of the clients."""
    gamma: StepSize = 1.0
    """Step size of the server."""
    schedule: Schedule = field(default=Constant())
    """How eta and gamma change from stage to stage."""
    local: LocalStep = field(default=SGD(), kw_only=True)
    """What a client makes of its directions within a round."""
    compression: Compression = field(default=Exact(), kw_only=True)
    """What becomes of messages on their way."""

    traced: ClassVar[tuple[str, ...]] = ("eta", "gamma")
    """Its numbers that are data to compiled code, so that one program serves all their values; its
    methods may compute with them, and not decide by them."""

    remembers: ClassVar[bool] = False
    """Whether the clients' state makes up for what a message leaves out, as DIANA's h_i does."""

    remembers_absent: ClassVar[bool] = False
    """Whether its states outlive stages, and clients that take no part work in the background:
    one local step each, whose message counts when it comes."""

    @property
    def pull(self) -> float:
        """Return how strongly local steps are drawn back to w."""
        return 0.0

    def step_sizes(self, stage: Stage) -> tuple[float, float]:
        """Return (eta_n, gamma_n) of a stage."""
        name = f"{type(self.schedule).__name__}.step_sizes"
        with calling(name, "it must return two numbers, eta_n and gamma_n"):
            eta_n, gamma_n = self.schedule.step_sizes(stage, self.eta, self.gamma)
            return float(eta_n), float(gamma_n)

    def server_start(self, w: Vector) -> Tree:
        """Return the server's state at the start of a stage."""
        del w
        return ()

    def client_start(self, w: Vector) -> Tree:
        """Return a client's state at the start of a stage."""
        del w
        return ()

    def tell(self, server: Tree) -> Tree:
        """Return what the clients are told of the server's state: all of it, if left out."""
        return server

    def drift(self, client: Tree, server: Tree) -> Vector | Number:
        """Return a correction for all of a client's directions in a round: a vector, or 0."""
        del client, server
        return 0.0

    def direction(self, g: Vector, drift: Vector | Number, w_i: Vector, w: Vector) -> Vector:
        """Return d_i, the direction of one local step, from the stochastic gradient g at w_i."""
        del drift, w_i, w
        return g

    def message(self, Delta_i: Vector, tau_i: Number, client: Tree, server: Tree) -> Vector:
        """Return m_i, what client i sends after tau_i local steps.

        With momentum tau_i is as many plain steps as the client's steps come to.
        """
        del tau_i, client, server
        return Delta_i

    def join(self, w: Vector) -> ClientState:
        """Return all that a client keeps at the start of a stage."""
        error = () if self.remembers else self.compression.start(w)
        return ClientState(self.client_start(w), error)

    def post(
        self, Delta_i: Vector, tau_i: Number, client: ClientState, server: Tree, u: Vector
    ) -> tuple[Vector, Posted]:
        """Return a client's message as it arrives, and what the client keeps of the round."""
        message = self.message(Delta_i, tau_i, client.own, server)
        # Where the solver remembers, what is not sent now is in the next difference, too.
        error = self.compression.start(message) if self.remembers else client.error
        m_i, error = self.compression.send(message, error, u)
        return m_i, self.posted(m_i, client, error)

    def posted(self, m_i: Vector, client: ClientState, error: Tree) -> Posted:
        """Return what a client keeps of a round of which it has sent m_i."""
        return Posted(m_i if leaves(client.own) else (), () if self.remembers else error)
