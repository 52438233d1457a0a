"""The picture of the cluster: nodes, pods and the objects plugins declared, with everything derived from them.

It changes only through ``upsert_…``, ``delete_…``, ``assume``, ``accept``, ``doubt``, ``confirm`` and ``forget``.
Each is synchronous, so that a decision between two awaits sees one consistent state. After any interleaving of events
it equals a cache that was built from their end result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from app.cache.aggregates import KEPT, Aggregates, Derived, Index
from app.cache.assumed import AssumedPods
from app.cache.changes import NodeChanges
from app.cache.claims import ClaimUses, PodsByClaim, claim_keys
from app.cache.counters import Counters
from app.cache.expiries import Expiries
from app.cache.left_out import LeftOut
from app.cache.objects import Gone, ObjectStore
from app.cache.overlay import Groups, Overlay, is_counted, nomination_of
from app.cache.terms import Terms
from app.framework.counts import NO_POD_TERMS, PodTerms
from app.framework.node_info import NodeInfo
from app.kube.core_decoding import PLAIN, CoreV1
from app.kube.core_v1 import Node, Pod, is_same
from app.kube.extras import Extra, NotDecoded
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey, precedes

Object = TypeVar("Object", bound=KubeObject)
_AS_IT_IS: Final = nullcontext()
_ON_NODES_DIFFER: Final = "pods on nodes differ from the pods"
_CONTROLLERS_DIFFER: Final = "pods of controllers differ from the pods"
_BY_CLAIM_DIFFER: Final = "pods by claim differ from the pods"


class Recounted(Protocol):
    """A recount under way, to be told of every pod once, and of every change."""

    def see(self, pod: Pod) -> None: ...
    def moved(self, old: Pod | None, new: Pod | None) -> None: ...


class Cluster:
    """Implements ``framework.Objects``; its ``counts`` implement ``framework.Counts``."""

    def __init__(self, core: CoreV1 = PLAIN) -> None:
        """``core`` says how its pods and nodes are decoded."""
        self.core = core
        self._nodes: dict[str, NodeInfo] = {}
        self._overlay: Overlay | None = None
        self.assumed = AssumedPods()
        self.counts = Counters(self._nodes)
        self.aggregates = Aggregates(self._nodes, core.extras)
        self._terms = Terms(self._nodes) if Extra.POD_AFFINITY in core.extras else None
        self._claims = ClaimUses(self._nodes)
        self._derived = self._declared()
        self._indexes: tuple[Index, ...] = self._derived if self._terms is None else (*self._derived, self._terms)
        self.others = ObjectStore()
        self.left_out = LeftOut()
        self._pods: dict[str, dict[str, Pod]] = {}
        self._strays: dict[str, dict[str, Pod]] = {}
        self._nominated: dict[str, dict[str, Pod]] = {}
        self._annotated: dict[str, Pod] = {}
        self._controlled: dict[str, dict[str, dict[str, Pod]]] = {}
        self._controllers: dict[str, Groups] = {}
        self._by_claim: PodsByClaim | None = None
        self._claiming: Groups | None = None
        self._gone = Gone()
        self._on_placed: list[Callable[[str], None]] = []
        self._recounts: list[Recounted] = []
        self._changes = 0
        self._node_changes = 0
        self.node_changes = NodeChanges()
        self.expiries = Expiries(self.node_changes)
        self.pod_changes = NodeChanges()

    def _declared(self) -> tuple[Derived, ...]:
        """What is kept since somebody declares what it is made of."""
        extras = self.core.extras
        found: tuple[Derived, ...] = (self.aggregates,) if extras & KEPT else ()
        return (*found, self._claims) if Extra.VOLUMES in extras else found

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """The node infos by name, live; within an overlay as it has them, to be read before it ends."""
        return self._nodes if self._overlay is None else self._overlay.nodes(self._nodes)

    @property
    def terms(self) -> PodTerms:
        """What pods ask of one another."""
        return NO_POD_TERMS if self._terms is None else self._terms

    @property
    def base_nodes(self) -> Mapping[str, NodeInfo]:
        """The node infos that are kept, whatever is laid over them: what is remembered rests on these."""
        return self._nodes

    @property
    def overlaid_nodes(self) -> Collection[str]:
        """The nodes that an overlay shows with other pods than they have."""
        return () if self._overlay is None else self._overlay.touched()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the picture has it: an assumed one with the node it is assumed on."""
        return self._pods.get(namespace, {}).get(name)

    def pods(self) -> Iterator[Pod]:
        """Pods may come and go while it is read: those of a namespace are as they were when it came to them."""
        for namespace in tuple(self._pods):
            yield from tuple(self._pods.get(namespace, {}).values())

    @property
    def generation(self) -> int:
        """Moves with every change of anything in the picture."""
        return self._changes + self.others.changes

    @property
    def node_set(self) -> int:
        """Moves whenever a node comes or goes."""
        return self._node_changes

    @property
    def node_generation(self) -> int:
        """Moves whenever a node comes, goes, or changes in anything but its version."""
        return self.node_changes.now

    def uses_of_claim(self, namespace: str, name: str) -> int:
        """How many volumes of pods on known nodes name the claim. Raises ``NotDecoded`` without ``Part.VOLUMES``."""
        if Extra.VOLUMES not in self.core.extras:
            raise NotDecoded(Extra.VOLUMES)
        moves = () if self._overlay is None else self._overlay.moves.values()
        return self._claims.uses(namespace, name, moves)

    @property
    def mounts_generation(self) -> int:
        """Moves whenever a pod with volumes comes to a node or leaves it, as far as somebody declares volumes."""
        return self._claims.changes

    def annotated_pods(self) -> Collection[Pod]:
        """Bound pods that carry annotations of our domain, terminating ones included."""
        kept = [pod for pod in self._annotated.values() if self.assumed.get(pod.uid) is None]
        return kept if self._overlay is None else self._overlay.annotated(kept)

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by the UID of their controller, if it is of this kind. Kept from the first call on, by the kind's name:
        almost all pods belong to other kinds, and cost nothing.
        """
        name = kind.kind
        if name not in self._controlled:
            self._controlled[name] = self._controlled_by(name)
            self._controllers[name] = Groups(lambda: self._controlled_now(name))
        return self._controllers[name]

    def _controlled_now(self, kind: str) -> Mapping[str, Mapping[str, Pod]]:
        kept = self._controlled[kind]
        return kept if self._overlay is None else self._overlay.controlled(kind, kept)

    def _controlled_by(self, kind: str) -> dict[str, dict[str, Pod]]:
        found: dict[str, dict[str, Pod]] = {}
        for pod in self.pods():
            if pod.owner is not None and pod.owner.kind == kind:
                found.setdefault(pod.owner.uid, {})[pod.uid] = pod
        return found

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by the claims that they name: ``namespace/name``. Kept from the first call on.

        Raises ``NotDecoded`` without ``Part.VOLUMES``.
        """
        if Extra.VOLUMES not in self.core.extras:
            raise NotDecoded(Extra.VOLUMES)
        if self._claiming is None:
            by_claim = self._by_claim = PodsByClaim(self.pods())
            self._claiming = Groups(lambda: self._claiming_now(by_claim.kept))
        return self._claiming

    def _claiming_now(self, kept: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        return kept if self._overlay is None else self._overlay.claiming(kept)

    def has_node(self, name: str) -> bool:
        return name in self._nodes

    def misses_node(self, name: str) -> bool:
        return name not in self._nodes and ("", name) not in self.left_out.of(NODES)

    def decoder(self, kind: Kind[Object]) -> Callable[[bytes | Raw], Object]:
        """How objects of a kind are decoded for this picture."""
        core: Mapping[Kind[Any], Any] = {PODS: self.core.decode_pod, NODES: self.core.decode_node}
        found: Callable[[bytes | Raw], Object] = core.get(kind, kind.decode)
        return found

    def count_of(self, kind: Kind[Any]) -> int:
        """How many objects of a kind the picture holds."""
        if kind == PODS:
            return sum(map(len, self._pods.values()))
        return len(self._nodes) if kind == NODES else self.others.count(kind)

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Pending pods that are nominated to the node."""
        return self._nominated_now().get(node_name, {}).values()

    @property
    def nominated_nodes(self) -> Collection[str]:
        return self._nominated_now().keys()

    def _nominated_now(self) -> Mapping[str, Mapping[str, Pod]]:
        return self._nominated if self._overlay is None else self._overlay.nominated(self._nominated)

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        if self.left_out:
            self.left_out.require(kind, namespace, name)
        return self.others.get(kind, namespace, name)

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        for namespace, name in self.others.keys(kind):
            found = self.others.get(kind, namespace, name)
            if found is not None:
                yield found

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        keys = self.others.changed(kind, seen)
        return None if keys is None else [(key, self.others.get(kind, *key)) for key in keys]

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        if self.left_out:
            self.left_out.require_all(kind, namespace)
        return self.others.in_namespace(kind, namespace)

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        return self.others.version(kind, namespace)

    def kind_version(self, kind: Kind[Any]) -> int:
        """Moves whenever an object of the kind does, in whatever namespace."""
        return self.others.kind_version(kind)

    def leave_out(self, kind: Kind[Any], key: ObjectKey, cause: str) -> None:
        """An object exists in a form that cannot be read. What was known of it before still counts."""
        self.left_out.add(kind, key, cause)
        self._touch(kind, key)

    def take_back(self, kind: Kind[Any], key: ObjectKey) -> None:
        """It is gone, or can be read again."""
        self.left_out.discard(kind, key)
        self._touch(kind, key)

    def _touch(self, kind: Kind[Any], key: ObjectKey) -> None:
        """What was derived while it was, or was not, left out has to be derived anew."""
        self._changes += 1
        if kind == NODES:
            self._node_changes += 1
            self.node_changes.note(key[1])
        else:
            self.others.touch(kind, key)

    def node_stamp(self, name: str) -> Hashable:
        """Return a value that changes with every version of the node and every change of the pods on it."""
        info = self._nodes.get(name)
        node = None if info is None else (info.node.uid, info.node.resource_version)
        return node, self.pod_changes.at(name)

    def ends(self, node: str, plugin: str, until: float) -> None:
        """Have the node judged anew at ``until``: a verdict of the plugin on it ends then."""
        self.expiries.add(node, plugin, until)

    def upsert_node(self, node: Node) -> None:
        """Add a node or replace what is known of it. Pods bound to it before it was known come out of hiding."""
        self._changes += 1
        info = self._nodes.get(node.name)
        if info is None:
            self._node_changes += 1
            self._nodes[node.name] = NodeInfo(node, self._strays.pop(node.name, None))
            self.counts.node(node.name, None, node)
            self._index_node(node.name, None, node)
            self.node_changes.note(node.name)
        else:
            old, info.node = info.node, node
            self.counts.node(node.name, old, node)
            self._index_node(node.name, old, node)
            if not is_same(old, node):
                self.node_changes.note(node.name)

    def upsert_read_node(self, node: Node) -> None:
        """Take in a node that was read past the watch, unless the watch shows that one, or has shown it deleted."""
        if node.name not in self._nodes and node.uid not in self._gone:
            self.upsert_node(node)

    def delete_node(self, name: str) -> None:
        """Remove a node; pods still bound to it are kept out of sight until they are gone or it is back."""
        info = self._nodes.pop(name, None)
        if info is None:
            return
        self._gone.add(info.node.uid)
        self._changes += 1
        self._node_changes += 1
        if info.pods:
            self._strays[name] = info.pods
        self.counts.node(name, info.node, None)
        self._index_node(name, info.node, None)
        self.node_changes.note(name)

    def upsert_pod(self, pod: Pod, *, newest_wins: bool = True) -> None:
        """Take in what the watch shows. A pod it shows bound is no longer assumed, wherever it was assumed."""
        self._changes += 1
        known = self.pod(pod.namespace, pod.name)
        if newest_wins and known is not None and precedes(pod.resource_version, known.resource_version):
            return  # a late word about what was read past the watch since, or about its predecessor
        if known is not None and known.uid != pod.uid:
            self._forget_pod(known)
            known = None
        pod = self._with_assumption(pod)
        if pod.finished:
            if known is not None:
                self._forget_pod(known)
            return
        self._pods.setdefault(pod.namespace, {})[pod.name] = pod
        self._move(known, pod)
        if pod.node_name and (known is None or not known.node_name):
            for listener in self._on_placed:
                listener(pod.uid)

    def on_placed(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of each pod that the watch shows on a node for the first time."""
        self._on_placed.append(listener)

    def upsert_read_pod(self, pod: Pod) -> None:
        """Take in a pod that was read past the watch, unless the watch has shown it deleted."""
        if pod.uid not in self._gone:
            self.upsert_pod(pod)

    def _with_assumption(self, pod: Pod) -> Pod:
        assumed = self.assumed.get(pod.uid)
        if assumed is None:
            return pod
        if pod.node_name or pod.finished:
            self.assumed.remove(pod.uid)
            return pod
        pod = replace(pod, node_name=assumed.node_name)
        self.assumed.put(pod)
        return pod

    def delete_pod(self, key: ObjectKey, uid: str = "") -> None:
        """Remove a pod; with ``uid`` only if it is still that one."""
        known = self.pod(*key)
        self._gone.add(uid or (known.uid if known is not None else ""))
        if known is not None and uid in ("", known.uid):
            self._changes += 1
            self._forget_pod(known)

    def _forget_pod(self, pod: Pod) -> None:
        self.assumed.remove(pod.uid)
        pods = self._pods[pod.namespace]
        del pods[pod.name]
        if not pods:
            del self._pods[pod.namespace]
        self._move(pod, None)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Place a pending pod on a node, in flight: counted, not certain."""
        self._changes += 1
        known = self.pod(pod.namespace, pod.name)
        if known is not None and known.uid != pod.uid:
            self._forget_pod(known)
            known = None
        placed = replace(pod, node_name=node_name)
        self._pods.setdefault(pod.namespace, {})[pod.name] = placed
        self.assumed.put(placed)
        self._move(known, placed)

    def accept(self, uid: str) -> None:
        """The API server took the binding of an assumed pod."""
        self.assumed.accept(uid)

    def doubt(self, uid: str) -> bool:
        """Count an assumed pod as one that may be bound or not; return whether its bind is unclear now."""
        self._changes += 1  # decisions that took it for certain no longer hold
        return self.assumed.doubt(uid)

    def confirm(self, uid: str) -> None:
        """End the assumption of a pod that was read bound where it is assumed."""
        self.assumed.remove(uid)

    def forget(self, uid: str) -> None:
        """The binding failed: the pod is pending again. No effect once the watch has shown it bound."""
        assumed = self.assumed.remove(uid)
        if assumed is None:
            return
        self._changes += 1
        pending = replace(assumed, node_name="")
        self._pods[pending.namespace][pending.name] = pending
        self._move(assumed, pending)

    def _seen(self, key: ObjectKey) -> Pod | None:
        """The pod as it is to be seen."""
        if self._overlay is not None and key in self._overlay.moves:
            return self._overlay.moves[key][1]
        return self.pod(*key)

    def has_part(self, uid: str, key: ObjectKey) -> bool:
        """Whether the pod itself is placed or nominated in the picture: then ``without`` it, the picture differs."""
        known = self._seen(key)
        return known is not None and uid in ("", known.uid) and bool(known.node_name or known.nominated_node_name)

    def place_of(self, uid: str, key: ObjectKey) -> str:
        """The node on which the picture has the pod; empty for none."""
        known = self.pod(*key)
        return known.node_name if known is not None and uid in ("", known.uid) else ""

    def without(self, uid: str, key: ObjectKey) -> AbstractContextManager[None]:
        """Leave one pod out of the picture for the length of a synchronous evaluation: a pod is not its own peer."""
        if not self.has_part(uid, key):
            return _AS_IT_IS
        laid = {} if self._overlay is None else self._overlay.moves
        return self._through(Overlay({**laid, key: (self.pod(*key), None)}))

    def overlay(self, *, without: Iterable[Pod] = (), with_: Iterable[Pod] = ()) -> AbstractContextManager[None]:
        """Read the picture without some pods and with others, for the length of a synchronous evaluation.

        Node infos, counts, nominations and the pods of controllers are as if it had been built so; nothing that is kept
        moves. A pod added stands in for one of its name. One opened within another adds to it. What was asked for
        before it is opened does not see it: open it before PreFilter.
        """
        moves = {} if self._overlay is None else dict(self._overlay.moves)
        for pod in without:
            _, seen = moves.get(pod.key, (None, self.pod(*pod.key)))
            if seen is not None and seen.uid == pod.uid:
                moves[pod.key] = (self.pod(*pod.key), None)
        for pod in with_:
            moves[pod.key] = (self.pod(*pod.key), None if pod.finished else pod)
        return self._through(Overlay(moves))

    @contextmanager
    def _through(self, overlay: Overlay) -> Iterator[None]:
        before = self._overlay
        self._lay(overlay)
        try:
            yield
        finally:
            self._lay(before)

    def _lay(self, overlay: Overlay | None) -> None:
        self._overlay = self.counts.overlay = overlay
        if self._terms is not None:
            self._terms.lay(overlay)

    def _move(self, old: Pod | None, new: Pod | None) -> None:
        """Bring node infos, nominations and counts from ``old`` to ``new``, two forms of one pod."""
        self._regroup(old, new)
        if old is not None and old.annotations:
            self._annotated.pop(old.uid, None)
        if new is not None and new.annotations and new.node_name:
            self._annotated[new.uid] = new
        if old is not None and old.nominated_node_name:
            _discard(self._nominated, old.nominated_node_name, old.uid)
        if old is not None and old.node_name and (new is None or new.node_name != old.node_name):
            self._remove_from_node(old)
            self.pod_changes.note(old.node_name)
        if new is not None and new.node_name:
            self._pods_on(new.node_name)[new.uid] = new
            if old is None or old.node_name != new.node_name or not _is_same_pod(old, new):
                self.pod_changes.note(new.node_name)
        elif new is not None and (nominated := nomination_of(new)):
            self._nominated.setdefault(nominated, {})[new.uid] = new
        self._recount(old, new)
        if self._indexes:
            self._index_pod(old, new)

    def _index_pod(self, old: Pod | None, new: Pod | None) -> None:
        was = old if old is not None and old.node_name else None
        now = new if new is not None and new.node_name else None
        if was is not None and now is not None and was.node_name == now.node_name and was.spec is now.spec:
            if was.labels is not now.labels and self._terms is not None:
                self._terms.relabelled(was, now, now.node_name)
            return
        for index in self._indexes:
            if was is not None:
                index.pod(was, was.node_name, -1)
            if now is not None:
                index.pod(now, now.node_name, 1)

    def _index_node(self, name: str, old: Node | None, new: Node | None) -> None:
        for index in self._indexes:
            index.node(name, old, new)

    def _regroup(self, old: Pod | None, new: Pod | None) -> None:
        """Move a pod among those of its controller, if somebody asked for that kind, and of its claims."""
        if self._by_claim is not None:
            self._by_claim.move(old, new)
        if old is not None and old.owner is not None and old.owner.kind in self._controlled:
            _discard(self._controlled[old.owner.kind], old.owner.uid, old.uid)
        if new is not None and new.owner is not None and new.owner.kind in self._controlled:
            self._controlled[new.owner.kind].setdefault(new.owner.uid, {})[new.uid] = new

    def _recount(self, old: Pod | None, new: Pod | None) -> None:
        for recount in self._recounts:
            recount.moved(old, new)
        was, now = _if_counted(old), _if_counted(new)
        if was is not None and now is not None and was.node_name == now.node_name and was.labels is now.labels:
            return
        if was is not None and now is not None and was.node_name == now.node_name:
            self.counts.relabelled(was, now, now.node_name)
            return
        if was is not None:
            self.counts.pod(was, was.node_name, -1)
        if now is not None:
            self.counts.pod(now, now.node_name, 1)

    def _pods_on(self, node_name: str) -> dict[str, Pod]:
        info = self._nodes.get(node_name)
        return info.pods if info is not None else self._strays.setdefault(node_name, {})

    def _remove_from_node(self, pod: Pod) -> None:
        info = self._nodes.get(pod.node_name)
        if info is not None:
            info.pods.pop(pod.uid, None)
        else:
            _discard(self._strays, pod.node_name, pod.uid)

    def check(self) -> list[str]:
        """Recount everything derived; returns what differs, in words."""
        return list(dict.fromkeys(filter(None, self.checking())))

    def checking(self) -> Generator[str, None, None]:
        """The same in small steps: what was found to differ in each, empty for nothing.

        Between steps the picture may change. The recount is told, and each step compares what is then with what is
        then, so that a difference is one.
        """
        recount = self.counts.recount()
        of_terms = None if self._terms is None else self._terms.recount()
        recounts = [it for it in (recount, of_terms) if it is not None]
        self._recounts += recounts
        try:
            for pod in self.pods():
                yield self._seen_anew(recounts, pod.key)
            for name in (*self._nodes, *self._strays):
                yield self._without_pod(name)
            for kind, controllers in self._controlled.items():
                for uid in tuple(controllers):
                    yield self._of_another(kind, uid)
            for key in tuple(self._by_claim.kept) if self._by_claim is not None else ():
                yield self._of_another_claim(key)
            yield from self.counts.differences(recount)
            for index in self._derived:
                yield from index.differences()
            if self._terms is not None and of_terms is not None:
                yield from self._terms.differences(of_terms)
        finally:
            for it in recounts:
                self._recounts.remove(it)

    def _seen_anew(self, recounts: Iterable[Recounted], key: ObjectKey) -> str:
        pod = self.pod(*key)
        if pod is None:
            return ""
        for recount in recounts:
            recount.see(pod)
        of_kind = self._controlled.get(pod.owner.kind) if pod.owner is not None else None
        if pod.owner is not None and of_kind is not None and of_kind.get(pod.owner.uid, {}).get(pod.uid) != pod:
            return _CONTROLLERS_DIFFER
        if self._by_claim is not None and not self._by_claim.has(pod):
            return _BY_CLAIM_DIFFER
        on_node = self._on_node(pod.node_name).get(pod.uid)
        return "" if on_node == (pod if pod.node_name else None) else _ON_NODES_DIFFER

    def _without_pod(self, name: str) -> str:
        strays = [it for it in self._on_node(name).values() if self.pod(*it.key) != it or it.node_name != name]
        return _ON_NODES_DIFFER if strays else ""

    def _of_another(self, kind: str, uid: str) -> str:
        pods = self._controlled[kind].get(uid, {}).values()
        right = all(self.pod(*it.key) == it and it.owner is not None and it.owner.uid == uid for it in pods)
        return "" if right else _CONTROLLERS_DIFFER

    def _of_another_claim(self, key: str) -> str:
        pods = self._by_claim.kept.get(key, {}).values() if self._by_claim is not None else ()
        return "" if all(self.pod(*it.key) == it and key in claim_keys(it) for it in pods) else _BY_CLAIM_DIFFER

    def _on_node(self, name: str) -> Mapping[str, Pod]:
        info = self._nodes.get(name)
        return self._strays.get(name, {}) if info is None else info.pods


def _if_counted(pod: Pod | None) -> Pod | None:
    return pod if pod is not None and is_counted(pod) else None


def _is_same_pod(old: Pod, new: Pod) -> bool:
    """Whether two forms of a pod differ in nothing that a plugin could read of a pod on a node, its version apart."""
    same = old.spec is new.spec and old.labels is new.labels and old.terminating == new.terminating
    same = same and old.annotations == new.annotations and old.owner == new.owner
    return same and old.lifecycle == new.lifecycle


def _discard(table: dict[str, dict[str, Pod]], name: str, uid: str) -> None:
    """Take ``uid`` out of a two-level table, and an emptied row with it."""
    row = table.get(name)
    if row is not None:
        row.pop(uid, None)
        if not row:
            del table[name]
