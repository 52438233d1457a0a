"""A person's edit of one annotation: preconditions, refusals, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.homes.by_hand import AnnotationTarget, ByHandError, Released, change, changed, release, released
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login
from app.kube.homes_v1alpha1 import API_VERSION, KIND, memory_name
from tests.apiserver import SERVED, ApiServer, Fault, client_of
from tests.builders import JsonObject, node_object

HOME = "homeport.dev/home"
TARGET = AnnotationTarget("kubevirt.io/v1", "VirtualMachine", "machines", "db01", HOME)


def machine(home: str = "", uid: str = "uid-1", **more: str) -> JsonObject:
    annotations = {**({HOME: home} if home else {}), **more}
    metadata = {"name": "db01", "namespace": "machines", "uid": uid, "annotations": annotations}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": {}}


def server(home: str = "n1") -> ApiServer:
    return ApiServer(machine(home, other="stays"), node_object("n1"), node_object("n2"))


def carried(api: ApiServer) -> dict[str, str]:
    """The annotations that are on the machine; none where it is gone."""
    found = api.get("VirtualMachine", "db01", "machines")
    return {} if found is None else dict(found["metadata"]["annotations"])


async def edit(api: ApiServer, value: str | None, target: AnnotationTarget = TARGET, **more: Any) -> str:
    async with client_of(api) as client:
        return await changed(client, target, value, **more)


async def refused(api: ApiServer, value: str | None, target: AnnotationTarget = TARGET, **more: Any) -> str:
    """What the person is told."""
    with pytest.raises(ByHandError) as found:
        await edit(api, value, target, **more)
    return str(found.value)


async def test_it_is_moved_and_nothing_else_is_touched() -> None:
    api = server()

    assert "n1" == await edit(api, "n2", check_node=True)
    assert {HOME: "n2", "other": "stays"} == carried(api)


async def test_it_is_removed_and_what_was_heard_stays() -> None:
    api = ApiServer(machine("n1", **{"homeport.dev/home-pod": "u"}))

    assert "n1" == await edit(api, None)
    assert {"homeport.dev/home-pod": "u"} == carried(api)


@pytest.mark.parametrize(("home", "value"), [("n2", "n2"), ("", None)])
async def test_what_is_so_already_is_not_written(home: str, value: str | None) -> None:
    api = server(home)

    assert home == await edit(api, value)
    assert 0 == api.count("PATCH")


async def test_the_version_that_was_read_is_a_precondition_and_status_may_move_it() -> None:
    api = server()
    api.meanwhile("PATCH", lambda: api.put(machine("n1", other="stays", more="new")))

    await edit(api, "n2")

    assert ({HOME: "n2", "other": "stays", "more": "new"}, 2) == (carried(api), api.count("PATCH"))


@pytest.mark.parametrize(
    ("do", "told"),
    [
        pytest.param(
            lambda api: api.put(machine("n3")),
            "VirtualMachine machines/db01: homeport.dev/home became 'n3' meanwhile; nothing was changed",
            id="somebody else moved it",
        ),
        pytest.param(
            lambda api: api.put(machine("n1", uid="uid-2")),
            "VirtualMachine machines/db01 was deleted and recreated meanwhile; nothing was changed",
            id="it is another one",
        ),
        pytest.param(
            lambda api: api.delete("kubevirt.io/v1 VirtualMachine", ("machines", "db01")),
            'VirtualMachine machines/db01: the API server refused: virtualmachines "db01" not found',
            id="it is gone",
        ),
    ],
)
async def test_what_changed_meanwhile_is_the_persons_to_decide(do: Callable[[ApiServer], None], told: str) -> None:
    api = server()
    api.meanwhile("PATCH", lambda: do(api))

    assert told == await refused(api, "n2")
    assert HOME not in carried(api) or carried(api)[HOME] != "n2" if api.keys("kubevirt.io/v1 VirtualMachine") else True


async def test_what_changes_all_the_time_is_given_up() -> None:
    api = server()
    for number in range(5):
        api.meanwhile("PATCH", partial(api.put, machine("n1", count=str(number))))

    told = "VirtualMachine machines/db01: it keeps changing; nothing was changed, try again"
    assert (told, "n1") == (await refused(api, "n2"), carried(api)[HOME])


@pytest.mark.parametrize(
    ("node", "told"),
    [
        pytest.param("n9", "there is no node n9: --force skips this check", id="no such node"),
        pytest.param("N 9", "'N 9' cannot be the name of a node: --force skips this check", id="no name"),
        pytest.param(
            "x" * 300, f"'{'x' * 64}...' cannot be the name of a node: --force skips this check", id="too long"
        ),
    ],
)
async def test_what_is_no_node_is_refused_unless_it_is_forced(node: str, told: str) -> None:
    api = server()

    assert (told, 0) == (await refused(api, node, check_node=True), api.count("PATCH"))
    assert ("n1", node) == (await edit(api, node), carried(api)[HOME])


async def test_who_may_not_ask_for_nodes_is_told_so() -> None:
    api = server()
    api.down_at["/api/v1/nodes/n2"] = 403

    told = "you are not allowed to get nodes, so node n2 could not be checked: --force skips this check"
    assert (told, 0) == (await refused(api, "n2", check_node=True), api.count("PATCH"))


@pytest.mark.parametrize(
    ("method", "fault", "told"),
    [
        ("PATCH", 403, "VirtualMachine machines/db01: the API server refused: told to"),
        ("PATCH", "unreachable", "the API server ("),
        (
            "PATCH",
            "unanswered",
            "VirtualMachine machines/db01: the outcome of the write is unknown, check the object: ",
        ),
        ("GET", "unreachable", "the API server ("),
    ],
)
async def test_what_the_api_server_says_is_told(method: str, fault: Fault, told: str) -> None:
    api = server()
    api.fail(method, fault)

    assert (await refused(api, "n2")).startswith(told)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (
            AnnotationTarget("kubevirt.io/v1", "VirtualMachine", "machines", "no", HOME),
            "there is no VirtualMachine machines/no",
        ),
        (
            AnnotationTarget("example.com/v1", "Database", "x", "y", HOME),
            "the cluster does not serve example.com/v1 Database",
        ),
    ],
)
async def test_what_is_not_there(target: AnnotationTarget, told: str) -> None:
    assert told == await refused(server(), "n2", target)


async def test_without_a_kubeconfig_nobody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError):
        await change(Login(str(tmp_path / "none")), TARGET, "n2")


MEMORY = memory_name("kubevirt.io/v1", "VirtualMachine", "db01", "")


def home(uid: str = "uid-0", **owner: str) -> JsonObject:
    keeper = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "db01", "uid": uid, **owner}
    metadata = {"name": MEMORY, "namespace": "machines", "uid": "uid-of-the-memory"}
    spec = {"owner": keeper, "node": "n1", "since": "2026-11-20T10:00:00Z"}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def is_remembered(api: ApiServer) -> bool:
    return api.get("Home", MEMORY, "machines") is not None


async def freed(api: ApiServer, target: AnnotationTarget = TARGET) -> Released:
    async with client_of(api) as client:
        return await released(client, target)


async def not_freed(api: ApiServer, target: AnnotationTarget = TARGET) -> str:
    with pytest.raises(ByHandError) as found:
        await freed(api, target)
    return str(found.value)


class TestReleased:
    async def test_a_home_is_taken_from_its_owner_and_homeport_forgets_it_by_itself(self) -> None:
        api = ApiServer(machine("n1", uid="uid-0"), home("uid-0"))

        assert Released("n1") == await freed(api)
        assert ("", 0) == (carried(api).get(HOME, ""), api.count("DELETE"))

    async def test_what_is_remembered_of_one_that_is_gone_is_forgotten(self) -> None:
        api = ApiServer(home())

        assert Released("n1", remembered=True) == await freed(api)
        assert not is_remembered(api)
        assert "there is no VirtualMachine machines/db01" == await not_freed(api)

    async def test_also_of_one_whose_uid_nobody_wrote_down(self) -> None:
        """It is listed as any other: the schema asks for no UID."""
        api = ApiServer(home(uid=""))

        assert (Released("n1", remembered=True), False) == (await freed(api), is_remembered(api))

    async def test_even_where_its_kind_is_gone_too(self) -> None:
        served = tuple(it for it in SERVED if it.kind != "VirtualMachine")
        api = ApiServer(home(), served=served)

        assert Released("n1", remembered=True) == await freed(api)
        assert "the cluster does not serve kubevirt.io/v1 VirtualMachine" == await not_freed(api)

    async def test_one_made_anew_that_was_not_given_it_yet_is_never_given_it(self) -> None:
        api = ApiServer(machine(), home())

        assert (Released("n1"), False) == (await freed(api), is_remembered(api))

    async def test_one_made_anew_and_given_it_meanwhile_loses_it_again(self) -> None:
        api = ApiServer(home())
        api.meanwhile("DELETE", lambda: api.put(machine("n1")))

        assert (Released("n1", remembered=True), "") == (await freed(api), carried(api).get(HOME, ""))
        assert not is_remembered(api)

    async def test_what_is_its_own_is_no_home_once_it_was_given_up(self) -> None:
        """Homeport forgets it within a second."""
        api = ApiServer(machine(uid="uid-0"), home("uid-0"))

        assert (Released(""), True) == (await freed(api), is_remembered(api))

    async def test_a_home_of_that_name_which_is_anothers_is_left_alone(self) -> None:
        api = ApiServer(home(name="db02"))

        assert ("there is no VirtualMachine machines/db01", True) == (await not_freed(api), is_remembered(api))

    async def test_where_there_are_no_homes_nothing_is_remembered(self) -> None:
        served = tuple(it for it in SERVED if it.kind != "Home")

        assert "there is no VirtualMachine machines/db01" == await not_freed(
            ApiServer(node_object("n1"), served=served)
        )
        assert Released("") == await freed(ApiServer(machine(), served=served))

    async def test_one_that_changed_meanwhile_is_read_again(self) -> None:
        api = ApiServer(home())
        api.meanwhile("DELETE", lambda: api.put(home("uid-of-another")))

        assert (Released("n1", remembered=True), 2) == (await freed(api), api.count("DELETE"))

    async def test_one_that_changes_all_the_time_is_given_up(self) -> None:
        api = ApiServer(home())
        for number in range(5):
            api.meanwhile("DELETE", partial(api.put, home(f"uid-{number}")))

        told = "its remembered home keeps changing; nothing was changed, try again"
        assert (f"VirtualMachine machines/db01: {told}", True) == (await not_freed(api), is_remembered(api))

    async def test_who_may_not_ask_is_told_what_is_not_known(self) -> None:
        there, gone = ApiServer(machine(), home()), ApiServer(home())
        for api in (there, gone):
            api.down_at[f"/apis/homeport.dev/v1alpha1/namespaces/machines/homes/{MEMORY}"] = 403

        told = "VirtualMachine machines/db01 has no home; you are not allowed to get Homes, "
        assert (await not_freed(there)).startswith(told)
        assert (await not_freed(gone)).startswith("VirtualMachine machines/db01: the API server refused: ")
        assert [0, 0] == [it.count("DELETE") for it in (there, gone)]

    async def test_one_that_cannot_be_read_is_named(self) -> None:
        api = ApiServer(home() | {"spec": {"node": 7}})

        assert (await not_freed(api)).startswith(f"Home machines/{MEMORY} cannot be read: ")

    async def test_without_a_kubeconfig_nobody_is_asked(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError):
            await release(Login(str(tmp_path / "none")), TARGET)
