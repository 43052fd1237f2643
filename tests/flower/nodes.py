"""Flower nodes in this process, for tests that make them fail in every way."""

from collections import deque
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class FakeTime:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


class LocalNode:
    """Runs a ClientApp's handlers; `faults` says what becomes of the next messages."""

    def __init__(self, app, node_config, node_id):
        self.app, self.id = app, node_id
        self.config = node_config
        self.faults, self.late = deque(), deque()
        self.online = True
        self.restart()

    def restart(self):
        """Lose the state, as a SuperNode does that is started anew."""
        self.context = Context(
            run_id=1, node_id=self.id, node_config=self.config, state=RecordDict(), run_config={}
        )

    def answer(self, message):
        fault = self.faults.popleft() if self.faults else None
        if fault == "crash":
            return Message(Error(code=2, reason="boom"), reply_to=message)
        if fault == "silent":
            return None
        if fault == "late":
            self.late.append((message, self.app(message, self.context)))
            return None
        try:
            reply = self.app(message, self.context)
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)
        return fault(reply) if callable(fault) else reply


class LocalGrid(Grid):
    """A grid of local nodes; a reply is there at once, never, or when it is delivered."""

    def __init__(self, nodes):
        self.nodes = {node.id: node for node in nodes}
        self.replies = {}
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.log = []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_nodes(self):
        raise NotImplementedError

    def get_node_ids(self):
        return [node.id for node in self.nodes.values() if node.online]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = id_ = str(uuid4())
            node = self.nodes[message.metadata.dst_node_id]
            self.log.append((node.id, message))
            reply = node.answer(message)
            if reply is not None:
                self.replies[id_] = reply
            ids.append(id_)
        return ids

    def deliver(self, node):
        """Let a node's first late reply come."""
        message, reply = node.late.popleft()
        self.replies[message.metadata.message_id] = reply

    def pull_messages(self, message_ids):
        return [self.replies.pop(id_) for id_ in list(message_ids) if id_ in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


class SlowGrid(LocalGrid):
    """Each node does one task after the other and takes some seconds for each."""

    def __init__(self, nodes, seconds, time):
        super().__init__(nodes)
        self.due, self.time = {}, time
        for node in self.nodes.values():
            node.takes, node.free = seconds, 0.0

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        for message, id_ in zip(messages, ids, strict=True):
            node = self.nodes[message.metadata.dst_node_id]
            node.free = self.due[id_] = max(self.time.now(), node.free) + node.takes
        return ids

    def pull_messages(self, message_ids):
        now = self.time.now()
        return super().pull_messages([id_ for id_ in message_ids if self.due[id_] <= now])
