"""Success is only said of a pod that was seen bound; a write of unknown outcome is settled before anything is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cache.cluster import Cluster
from app.framework.objects import NotServed, ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Code, Status, error, unschedulable
from app.kube.api_requests import METADATA, PreSendCheck, Resource
from app.kube.client import KubeClient
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import HomeRecord, decode_home
from app.kube.kinds import REPLICA_SETS, AnnotatedObject, Kind, partial_kind
from app.writes.api_writes import ApiBinder, ApiWriter, binding, is_permanent_refusal
from app.writes.bind_guard import BindGuard, NotBound, passed_down
from app.writes.read_back import FENCE
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import JsonObject, controller, encoded, make_pod, pod_object, workload_object
from tests.unit.app.writes.test_bind_guard import Words

HOMES: Kind[HomeRecord] = Kind("homeport.dev/v1alpha1", "Home", decode_home)
POD_PATH = "/api/v1/namespaces/default/pods/web-1"
POST = f"POST {POD_PATH}/binding"
GET = f"GET {POD_PATH}"
PATCH = f"PATCH {POD_PATH}/status"
NOT_ARRIVED = error("the binding did not arrive at the API server")


def _nothing() -> None:
    """Every Binding may leave."""


class Bind:
    """A binder, the API server it talks to, and the pod as it was decided on."""

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.server = server
        self.slept: list[float] = []
        self.check: PreSendCheck = _nothing
        self.binder = ApiBinder(client, decode_pod, BindGuard(), self._sleep)
        found = server.get("Pod", "web-1")
        assert found is not None
        self.pod: Pod = decode_pod(encoded(found))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def to(self, node: str = "n1") -> Status:
        with passed_down(self.pod, node, self.check):
            return await self.binder.bind(self.pod, node, {"homeport.dev/home": node})

    @property
    def bound_to(self) -> str:
        found = self.server.get("Pod", "web-1")
        return "" if found is None else found["spec"].get("nodeName", "")

    def change(self, **fields: Any) -> Callable[[], None]:
        """Somebody writes the pod."""
        return lambda: self.server.put(pod_object("web-1", **fields))

    def changes_before_each_post(self, times: int) -> None:
        """Somebody writes its annotations."""
        left = iter(range(times - 1))

        def change() -> None:
            self.server.put(pod_object("web-1", labels={"app": "web"}, annotations={"example.com/x": "y"}))
            if next(left, None) is not None:
                self.server.meanwhile("GET", lambda: self.server.meanwhile("POST", change))

        self.server.meanwhile("POST", change)


@pytest.fixture
async def bind(tmp_path: Path) -> AsyncIterator[Bind]:
    server = ApiServer(pod_object("web-1", labels={"app": "web"}))
    async with client_of(server) as client:
        yield Bind(client, server)


class TestBinding:
    @pytest.mark.parametrize(
        ("pod", "annotations", "metadata"),
        [
            pytest.param(
                make_pod("web-1", uid="u", resource_version="7"),
                {"homeport.dev/home": "n1"},
                {"uid": "u", "resourceVersion": "7", "annotations": {"homeport.dev/home": "n1"}},
                id="UID and version are preconditions, annotations travel along",
            ),
            pytest.param(
                make_pod("web-1", uid="u", resource_version=""), {}, {"uid": "u"}, id="no version, no annotations"
            ),
        ],
    )
    def test_what_is_posted(self, pod: Pod, annotations: dict[str, str], metadata: JsonObject) -> None:
        assert {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "web-1", "namespace": "default", **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        } == binding(pod, "n1", annotations)


class TestBinder:
    async def test_taken(self, bind: Bind) -> None:
        assert await bind.to() == SUCCESS
        assert [POST] == bind.server.log
        found = bind.server.get("Pod", "web-1")
        assert found is not None
        assert ("n1", {"homeport.dev/home": "n1"}) == (bind.bound_to, found["metadata"]["annotations"])

    @pytest.mark.parametrize(
        ("node", "status"), [("n1", SUCCESS), ("n2", error('pod web-1 is already assigned to node "n2"'))]
    )
    async def test_bound_already(self, bind: Bind, node: str, status: Status) -> None:
        bind.change(labels={"app": "web"}, node=node)()

        assert status == await bind.to()
        assert [POST, GET] == bind.server.log

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param({"phase": "Pending", "nominated": "n3"}, id="its status"),
            pytest.param({"annotations": {"example.com/x": "y"}}, id="annotations"),
        ],
    )
    async def test_a_pod_that_changed_in_nothing_that_decides_is_tried_once_more(
        self, bind: Bind, changed: dict[str, Any]
    ) -> None:
        bind.change(labels={"app": "web"}, **changed)()

        assert await bind.to() == SUCCESS
        assert ([POST, GET, POST], "n1") == (bind.server.log, bind.bound_to)

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param({"labels": {"app": "db"}}, id="its labels"),
            pytest.param({"labels": {"app": "web"}, "tolerations": [{"operator": "Exists"}]}, id="its spec"),
            pytest.param({"labels": {"app": "web"}, "owner": controller("ReplicaSet", "web")}, id="its owner"),
            pytest.param({"labels": {"app": "web"}, "terminating": True}, id="it is being deleted"),
            pytest.param({"labels": {"app": "web"}, "phase": "Failed"}, id="it has failed"),
            pytest.param({"labels": {"app": "web"}, "annotations": {FENCE: "1"}}, id="it was fenced off"),
            pytest.param({"labels": {"app": "web"}, "annotations": {"homeport.dev/policy": "off"}}, id="its policy"),
        ],
    )
    async def test_a_pod_that_changed_otherwise_is_a_conflict(self, bind: Bind, changed: dict[str, Any]) -> None:
        bind.change(**changed)()

        assert await bind.to() == unschedulable(
            "the pod changed while it was being bound: Precondition failed: resourceVersion"
        )
        assert ([POST, GET], "") == (bind.server.log, bind.bound_to)

    @pytest.mark.parametrize("times", [2, 15])
    async def test_a_pod_whose_status_changes_again_meanwhile(self, bind: Bind, times: int) -> None:
        bind.changes_before_each_post(times)

        assert await bind.to() == SUCCESS
        assert ([*[POST, GET] * times, POST], "n1") == (bind.server.log, bind.bound_to)

    async def test_a_pod_that_keeps_changing_is_a_conflict(self, bind: Bind) -> None:
        bind.changes_before_each_post(16)

        assert await bind.to() == unschedulable(
            "the pod keeps changing while it is being bound: Precondition failed: resourceVersion"
        )
        assert ([POST, GET] * 16, "") == (bind.server.log, bind.bound_to)

    @pytest.mark.parametrize(
        "gone",
        [
            pytest.param(lambda server: server.clear(), id="deleted"),
            pytest.param(lambda server: server.put(pod_object("web-1", uid="new")), id="recreated"),
        ],
    )
    async def test_a_pod_that_is_gone(self, bind: Bind, gone: Callable[[ApiServer], None]) -> None:
        gone(bind.server)

        status = await bind.to()

        assert not status.is_success
        assert 'pods "web-1" not found' in status.message

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            pytest.param(403, error("the API server refused the binding: told to"), id="forbidden"),
            pytest.param(422, error("the API server refused the binding: told to"), id="invalid"),
            pytest.param(
                "unreachable",
                error(f"the API server cannot be reached: {POST}: ConnectError no route"),
                id="never sent",
            ),
        ],
    )
    async def test_a_clear_failure_is_said_at_once(self, bind: Bind, fault: Fault, expected: Status) -> None:
        bind.server.fail("POST", fault)

        assert expected == await bind.to()
        assert [POST] == bind.server.log


class TestUnknownOutcome:
    """A timeout, a reset, a 5xx, or a 2xx that is not the API server's Status: the pod may be bound or not."""

    async def test_it_had_arrived(self, bind: Bind) -> None:
        bind.server.fail("POST", "unanswered")

        assert await bind.to() == SUCCESS
        assert [POST, GET] == bind.server.log

    async def test_a_2xx_without_a_status_is_not_a_bind(self, bind: Bind) -> None:
        bind.server.fail("POST", httpx.Response(200, content=b"<html>Welcome</html>"))

        assert await bind.to() == NOT_ARRIVED
        assert ([POST, GET, PATCH], "") == (bind.server.log, bind.bound_to)

    @pytest.mark.parametrize("fault", ["lost", 500, 503, 504])
    async def test_it_had_not_arrived_and_is_fenced_off_before_the_answer(self, bind: Bind, fault: Fault) -> None:
        version = bind.pod.resource_version
        bind.server.fail("POST", fault)

        assert await bind.to() == NOT_ARRIVED
        assert [POST, GET, PATCH] == bind.server.log
        found = bind.server.get("Pod", "web-1")
        assert found is not None
        assert {FENCE: version} == found["metadata"]["annotations"]

    async def test_it_is_read_until_the_api_server_answers(self, bind: Bind) -> None:
        bind.server.fail("POST", "unanswered")
        bind.server.fail("GET", "lost", "unreachable", 500, 403, "another")

        assert await bind.to() == SUCCESS
        assert [POST, *[GET] * 6] == bind.server.log
        assert [0.25, 0.5, 1.0, 2.0, 2.0] == bind.slept

    async def test_the_second_try_can_be_unclear_too(self, bind: Bind) -> None:
        bind.change(labels={"app": "web"})()
        bind.server.fail("POST", 409, "late")

        assert await bind.to() == NOT_ARRIVED
        assert [409] == bind.server.arrive()


SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", namespaced=True)
MACHINE = partial_kind("kubevirt.io/v1", "VirtualMachine")
UNSERVED = partial_kind("example.com/v1", "Database")


class Write:
    """A writer, the API server it talks to, and the picture it keeps up to date."""

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.server = server
        self.cluster = Cluster()
        resources: dict[Kind[Any], Resource] = {REPLICA_SETS: SETS}
        self.writer = ApiWriter(client, self.cluster, resources.get)
        self.see()

    def see(self) -> None:
        """The watch shows what is there."""
        found = self.server.get("ReplicaSet", "web")
        assert found is not None
        self.cluster.others.upsert(REPLICA_SETS, REPLICA_SETS.decode(encoded(found)))

    @property
    def known(self) -> AnnotatedObject:
        found = self.cluster.get(REPLICA_SETS, "default", "web")
        assert found is not None
        return found

    async def annotate(self, **annotations: str | None) -> None:
        found = self.known
        await self.writer.annotate(
            REPLICA_SETS, found, {f"homeport.dev/{key}": value for key, value in annotations.items()}
        )

    def change(self, **annotations: str) -> Callable[[], None]:
        """Somebody else writes annotations."""
        owner = workload_object("ReplicaSet", "web")
        owner["metadata"]["annotations"] = {f"homeport.dev/{key}": value for key, value in annotations.items()}
        return lambda: self.server.put(owner)


@pytest.fixture
async def write(tmp_path: Path) -> AsyncIterator[Write]:
    server = ApiServer(workload_object("ReplicaSet", "web"))
    async with client_of(server) as client:
        yield Write(client, server)


class TestWriter:
    async def test_the_picture_has_what_was_written(self, write: Write) -> None:
        await write.annotate(home="n1", old=None)

        assert {"homeport.dev/home": "n1"} == write.known.annotations
        found = write.server.get("ReplicaSet", "web")
        assert found is not None
        assert found["metadata"]["resourceVersion"] == write.known.resource_version
        assert ["PATCH /apis/apps/v1/namespaces/default/replicasets/web"] == write.server.log

    async def test_a_conflict_leaves_the_newest_form_in_the_picture_and_the_next_write_succeeds(
        self, write: Write
    ) -> None:
        write.change(other="x")()
        with pytest.raises(WriteConflict):
            await write.annotate(home="n1")
        assert {"homeport.dev/other": "x"} == write.known.annotations

        await write.annotate(home="n1")

        assert {"homeport.dev/home": "n1", "homeport.dev/other": "x"} == write.known.annotations

    @pytest.mark.parametrize("method", ["PATCH", "GET"])
    async def test_an_object_that_is_gone(self, write: Write, method: str) -> None:
        write.change(home="n7")()
        write.server.meanwhile(method, write.server.clear)

        with pytest.raises(ObjectGone, match=r"^ReplicaSet default/web$"):
            await write.annotate(home="n1")

        assert write.cluster.get(REPLICA_SETS, "default", "web") is None

    @pytest.mark.parametrize("fault", [403, 500, "lost", "unreachable", "another"])
    async def test_a_conflict_whose_cause_cannot_be_read(self, write: Write, fault: Fault) -> None:
        write.change(home="n7")()
        write.server.fail("GET", fault)

        with pytest.raises(OSError):  # noqa: PT011
            await write.annotate(home="n1")


class Homes:
    """A writer of objects of a kind of ours, and the API server that it talks to."""

    PATH = "/apis/homeport.dev/v1alpha1/namespaces/default/homes"

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.server = server
        self.cluster = Cluster()
        self.problem = ""
        served = {HOMES: Resource("homeport.dev", "v1alpha1", "homes", "Home", namespaced=True)}
        self.writer = ApiWriter(client, self.cluster, served.get, lambda: self.problem)

    @property
    def known(self) -> HomeRecord:
        """As the picture has it."""
        found = self.cluster.get(HOMES, "default", "db")
        assert found is not None
        return found

    @property
    def spec(self) -> JsonObject | None:
        """As the API server has it."""
        found = self.server.get("Home", "db")
        return None if found is None else dict(found["spec"])

    async def create(self, node: str = "n1") -> None:
        await self.writer.create(HOMES, "default", "db", {"node": node, "machine": "m1"})

    def moves(self) -> None:
        """Somebody else writes it."""
        found = self.server.get("Home", "db")
        assert found is not None
        self.server.put({**found, "spec": {"node": "n9"}})


@pytest.fixture
async def homes() -> AsyncIterator[Homes]:
    server = ApiServer()
    async with client_of(server) as client:
        yield Homes(client, server)


class TestWholeObjects:
    async def test_one_that_is_made_is_in_the_picture(self, homes: Homes) -> None:
        await homes.create()

        assert {"node": "n1", "machine": "m1"} == homes.spec
        assert ("n1", "m1") == (homes.known.node, homes.known.machine)
        assert [f"POST {homes.PATH}"] == homes.server.log

    async def test_one_of_a_name_that_is_taken(self, homes: Homes) -> None:
        """The picture has what is there."""
        named = {"apiVersion": "homeport.dev/v1alpha1", "kind": "Home"}
        homes.server.put({**named, "metadata": {"name": "db", "namespace": "default"}, "spec": {"node": "n9"}})

        with pytest.raises(WriteConflict):
            await homes.create()

        assert "n9" == homes.known.node

    async def test_one_in_a_namespace_that_is_going(self, homes: Homes) -> None:
        homes.server.missing_namespaces.add("default")

        with pytest.raises(ObjectGone, match=r"^Home default/db$"):
            await homes.create()

    async def test_another_spec_takes_the_place_of_the_one_before(self, homes: Homes) -> None:
        await homes.create()

        await homes.writer.change(HOMES, homes.known, {"node": "n2", "machine": None})

        assert {"node": "n2"} == homes.spec
        assert ("n2", "") == (homes.known.node, homes.known.machine)

    async def test_a_deletion(self, homes: Homes) -> None:
        await homes.create()

        await homes.writer.delete(HOMES, homes.known)

        assert (None, None) == (homes.spec, homes.cluster.get(HOMES, "default", "db"))
        assert f"DELETE {homes.PATH}/db" == homes.server.log[-1]

    @pytest.mark.parametrize("verb", ["change", "delete"])
    async def test_what_changed_meanwhile_is_left_alone(self, homes: Homes, verb: str) -> None:
        await homes.create()
        known = homes.known
        homes.moves()

        with pytest.raises(WriteConflict):
            await self.write(homes, verb, known)

        assert ({"node": "n9"}, "n9") == (homes.spec, homes.known.node)

    @pytest.mark.parametrize("verb", ["change", "delete"])
    async def test_what_is_gone(self, homes: Homes, verb: str) -> None:
        await homes.create()
        known = homes.known
        homes.server.clear()

        with pytest.raises(ObjectGone):
            await self.write(homes, verb, known)

        assert homes.cluster.get(HOMES, "default", "db") is None

    @pytest.mark.parametrize(("verb", "method"), [("create", "POST"), ("change", "PATCH"), ("delete", "DELETE")])
    @pytest.mark.parametrize("fault", [403, 500, "lost", "unanswered", "unreachable"])
    async def test_a_write_that_may_have_failed(self, homes: Homes, verb: str, method: str, fault: Fault) -> None:
        if verb != "create":
            await homes.create()
        homes.server.fail(method, fault)

        with pytest.raises(OSError):  # noqa: PT011  # every word of it comes from elsewhere
            await self.write(homes, verb, homes.cluster.get(HOMES, "default", "db"))

        kept = [it.node for it in homes.cluster.every(HOMES)]
        assert ([] if verb == "create" else ["n1"]) == kept, "the picture is as it was"

    @pytest.mark.parametrize("verb", ["create", "change", "delete"])
    async def test_who_may_not_write_sends_nothing(self, homes: Homes, verb: str) -> None:
        await homes.create()
        homes.problem = "somebody else leads"
        sent = len(homes.server.log)

        with pytest.raises(OSError, match=r"^somebody else leads$"):
            await self.write(homes, verb, homes.known)

        assert sent == len(homes.server.log)

    async def test_without_its_definition(self, homes: Homes) -> None:
        with pytest.raises(NotServed, match=r"^example\.com/v1 Database is not served by the API server$"):
            await homes.writer.create(UNSERVED, "default", "db", {})

    @staticmethod
    async def write(homes: Homes, verb: str, known: HomeRecord | None) -> None:
        if verb == "create":
            await homes.create()
        elif known is not None:
            await (homes.writer.delete(HOMES, known) if verb == "delete" else homes.writer.change(HOMES, known, {}))


@pytest.mark.parametrize(
    ("status", "never"),
    [(400, True), (403, True), (422, True), (401, False), (404, False), (409, False), (429, False), (500, False)],
)
def test_who_refuses_for_good(status: int, never: bool) -> None:
    assert never == is_permanent_refusal(status)


class TestPreSendCheck:
    REJECTED = unschedulable("no longer possible")

    async def test_what_is_held_back_never_leaves(self, bind: Bind) -> None:
        bind.check = Words(NotBound(self.REJECTED))

        assert await bind.to() == self.REJECTED
        assert bind.server.log == []

    async def test_a_second_attempt_asks_again(self, bind: Bind) -> None:
        """The pod's status moved, and while it was read anew so did the picture."""
        bind.change(labels={"app": "web"}, annotations={"a": "b"})()
        bind.check = Words(None, NotBound(self.REJECTED))

        assert await bind.to() == self.REJECTED
        assert [POST, GET] == bind.server.log


def odd(raw: bytes) -> bytes:
    """An object that makes no sense."""
    return raw.replace(b'"labels"', b'"labels": 5, "were"')


class TestWhatIsReadBack:
    async def test_however_deep(self, bind: Bind) -> None:
        bind.change(labels={"app": "web"}, phase="Pending")()
        bind.server.spoil = lambda raw: b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"," + raw[1:]

        assert await bind.to() == SUCCESS
        assert ([POST, GET, POST], "n1") == (bind.server.log, bind.bound_to)

    async def test_a_pod_that_makes_no_sense_after_a_conflict_is_named(self, bind: Bind) -> None:
        bind.change(labels={"app": "web"}, phase="Pending")()
        bind.server.spoil = odd

        status = await bind.to()

        assert status.code is Code.ERROR
        assert status.message.startswith('pod "web-1" cannot be read: metadata.labels')
        assert ([POST, GET], "") == (bind.server.log, bind.bound_to)


class TestAnswersOfWrites:
    @pytest.fixture
    async def server(self) -> ApiServer:
        metadata = {"name": "db", "namespace": "default", "uid": "u"}
        return ApiServer({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata})

    @pytest.fixture
    async def writer(self, tmp_path: Path, server: ApiServer) -> AsyncIterator[ApiWriter]:
        async with client_of(server) as client:
            yield ApiWriter(client, Cluster(), lambda _: MACHINES)

    def machine(self, server: ApiServer) -> AnnotatedObject:
        return MACHINE.decode(encoded(server.get("VirtualMachine", "db")))

    async def test_of_a_custom_resource_only_metadata_is_asked_for(self, server: ApiServer, writer: ApiWriter) -> None:
        """The whole one may be as large and as deep as its owner likes. So too after a conflict."""
        found = self.machine(server)
        await writer.annotate(MACHINE, found, {"homeport.dev/home": "n1"})
        with pytest.raises(WriteConflict):
            await writer.annotate(MACHINE, found, {"homeport.dev/home": "n2"})

        assert [METADATA] * 3 == server.accepts

    async def test_one_that_makes_no_sense_is_named(self, server: ApiServer, writer: ApiWriter) -> None:
        found = self.machine(server)
        server.spoil = lambda raw: raw.replace(b'"uid"', b'"name": 5, "was"')

        with pytest.raises(OSError, match=r"^VirtualMachine default/db cannot be read: Expected"):
            await writer.annotate(MACHINE, found, {"homeport.dev/home": "n1"})
