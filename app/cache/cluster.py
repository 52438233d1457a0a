"""Snapshot of the cluster: nodes, pods, objects of the kinds that plugins declare, and all data derived from them.

The snapshot changes only through ``upsert_…``, ``delete_…``, ``assume``, ``accept``, ``doubt``, ``confirm``, ``forget``
and ``mark_…``, and methods of ``others``, ``assumed`` and ``expiries``. All are synchronous, so code that does not
await sees one consistent state. The snapshot does not depend on the order of events, only on the current objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from app.cache.aggregates import AGGREGATED, Aggregates, CheckedIndex, PodIndex
from app.cache.assumed import AssumedPods
from app.cache.changes import NodeChanges
from app.cache.claims import ClaimUses, PodsByClaim, claim_keys
from app.cache.counters import Counters
from app.cache.expiries import Expiries
from app.cache.objects import DeletedUids, ObjectStore
from app.cache.overlay import LiveGroups, Overlay, is_counted, nomination_of
from app.cache.recount import PodRecount
from app.cache.terms import Terms
from app.cache.unreadable import UnreadableObjects
from app.framework.counts import NO_POD_TERMS, PodTerms
from app.framework.node_info import NodeInfo
from app.kube.core_decoding import PLAIN, CoreV1
from app.kube.core_v1 import Node, Pod, is_same
from app.kube.extras import Extra, NotDecoded
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey, precedes

Object = TypeVar("Object", bound=KubeObject)

MOST_MESSAGE_CHARACTERS: Final = 16 << 20
"""Maximum characters of all messages of kube-scheduler on why pods are pending. Further messages are dropped."""

_NO_OVERLAY: Final = nullcontext()
_ON_NODES_DIFFER: Final = "pods on nodes differ from the pods"
_CONTROLLERS_DIFFER: Final = "pods of controllers differ from the pods"
_BY_CLAIM_DIFFER: Final = "pods by claim differ from the pods"


class Cluster:
    """Snapshot of the cluster. Implements ``framework.Objects``.

    ``counts`` implements ``framework.Counts``, and ``terms`` implements ``framework.PodTerms``. ``others``: objects
    that are neither nodes nor pods. ``unreadable``: objects that cannot be decoded. ``node_changes``: log of changed
    nodes. ``pod_changes``: log of nodes whose pods changed. ``expiries``: times when cached verdicts on nodes expire.
    """

    def __init__(self, core: CoreV1 = PLAIN) -> None:
        """``core``: decoders of pods and nodes, with the parts that plugins declare."""
        self.core = core
        self._nodes: dict[str, NodeInfo] = {}
        self._overlay: Overlay | None = None
        self.assumed = AssumedPods()
        self.counts = Counters(self._nodes)
        self.aggregates = Aggregates(self._nodes, core.extras)
        self._terms = Terms(self._nodes) if Extra.POD_AFFINITY in core.extras else None
        self._claims = ClaimUses(self._nodes)
        self._checked = self._declared_indexes()
        self._indexes: tuple[PodIndex, ...] = self._checked if self._terms is None else (*self._checked, self._terms)
        self.others = ObjectStore()
        self.unreadable = UnreadableObjects()
        self._pods: dict[str, dict[str, Pod]] = {}
        self._hidden_pods: dict[str, dict[str, Pod]] = {}
        self._nominated: dict[str, dict[str, Pod]] = {}
        self._annotated: dict[str, Pod] = {}
        self._controlled: dict[str, dict[str, dict[str, Pod]]] = {}
        self._controllers: dict[str, LiveGroups] = {}
        self._by_claim: PodsByClaim | None = None
        self._claiming: LiveGroups | None = None
        self._deleted = DeletedUids()
        self._on_placed: list[Callable[[str], None]] = []
        self._recounts: list[PodRecount] = []
        self._changes = 0
        self._message_characters = 0
        self._node_changes = 0
        self.node_changes = NodeChanges()
        self.expiries = Expiries(self.node_changes)
        self.pod_changes = NodeChanges()

    def _declared_indexes(self) -> tuple[CheckedIndex, ...]:
        """Return the indexes that are needed for the parts that plugins declare, without ``_terms``."""
        extras = self.core.extras
        indexes: tuple[CheckedIndex, ...] = (self.aggregates,) if extras & AGGREGATED else ()
        return (*indexes, self._claims) if Extra.VOLUMES in extras else indexes

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Node infos by name, with the current overlay. The mapping is live: it changes with the cluster.

        A mapping that was returned while an overlay was set must not be used after the end of that overlay.
        """
        return self._nodes if self._overlay is None else self._overlay.nodes(self._nodes)

    @property
    def terms(self) -> PodTerms:
        """Counts of pods by affinity terms. Queries raise ``NotDecoded`` without ``Part.POD_AFFINITY``."""
        return NO_POD_TERMS if self._terms is None else self._terms

    @property
    def base_nodes(self) -> Mapping[str, NodeInfo]:
        """Node infos by name without any overlay, because cached verdicts must not depend on an overlay."""
        return self._nodes

    @property
    def overlaid_nodes(self) -> Collection[str]:
        """Names of the nodes that the current overlay changes, or on which it omits or adds pods."""
        return () if self._overlay is None else self._overlay.touched()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod; ``None`` if it is unknown. An assumed pod has ``node_name`` set to its intended node.

        An overlay does not change the result.
        """
        return self._pods.get(namespace, {}).get(name)

    def namespaces(self) -> Collection[str]:
        """Return the namespaces that have pods."""
        return tuple(self._pods)

    def pods(self) -> Iterator[Pod]:
        """Yield all pods, without overlay. Pods can change between two yields."""
        for namespace in tuple(self._pods):
            yield from self.pods_in(namespace)

    def pods_in(self, namespace: str) -> Sequence[Pod]:
        """Return the present pods of a namespace, without overlay."""
        return tuple(self._pods.get(namespace, {}).values())

    @property
    def generation(self) -> int:
        """Number that increases with every change except ``accept``, ``confirm``, expiries, and a wait at Permit."""
        return self._changes + self.others.changes

    @property
    def node_set(self) -> int:
        """Number that increases when a node is added or deleted, or becomes readable or unreadable."""
        return self._node_changes

    @property
    def node_generation(self) -> int:
        """Number that increases when ``node_changes`` records a change of a node.

        A change of only ``resource_version`` is not recorded.
        """
        return self.node_changes.now

    def uses_of_claim(self, namespace: str, name: str) -> int:
        """Return the number of volumes of pods on known nodes that name the PersistentVolumeClaim.

        Raises ``NotDecoded`` without ``Part.VOLUMES``.
        """
        if Extra.VOLUMES not in self.core.extras:
            raise NotDecoded(Extra.VOLUMES)
        moves = () if self._overlay is None else self._overlay.moves.values()
        return self._claims.uses(namespace, name, moves)

    @property
    def mounts_generation(self) -> int:
        """Number that increases when a pod with volumes joins or leaves a node, or a node is added or deleted.

        The number is constant if no plugin declares ``Part.VOLUMES``.
        """
        return self._claims.changes

    def annotated_pods(self) -> Collection[Pod]:
        """Return the bound pods that have annotations of Homeport's domain, including terminating pods.

        Assumed pods are omitted.
        """
        bound = [pod for pod in self._annotated.values() if self.assumed.get(pod.uid) is None]
        return bound if self._overlay is None else self._overlay.annotated(bound)

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods that controllers of this kind own, by the UID of the controller and the UID of the pod.

        The result is live: it changes with the cluster. The index of a kind is built at the first call for this kind.
        """
        name = kind.kind
        if name not in self._controlled:
            self._controlled[name] = self._controlled_by(name)
            self._controllers[name] = LiveGroups(lambda: self._controlled_now(name))
        return self._controllers[name]

    def _controlled_now(self, kind: str) -> Mapping[str, Mapping[str, Pod]]:
        controlled = self._controlled[kind]
        return controlled if self._overlay is None else self._overlay.controlled(kind, controlled)

    def _controlled_by(self, kind: str) -> dict[str, dict[str, Pod]]:
        controlled: dict[str, dict[str, Pod]] = {}
        for pod in self.pods():
            if pod.owner is not None and pod.owner.kind == kind:
                controlled.setdefault(pod.owner.uid, {})[pod.uid] = pod
        return controlled

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods by the PersistentVolumeClaims that they name (``namespace/name``), and by UID.

        The result is live: it changes with the cluster. The first call builds the index. Raises ``NotDecoded`` if no
        plugin declares ``Part.VOLUMES``.
        """
        if Extra.VOLUMES not in self.core.extras:
            raise NotDecoded(Extra.VOLUMES)
        if self._claiming is None:
            by_claim = self._by_claim = PodsByClaim(self.pods())
            self._claiming = LiveGroups(lambda: self._claiming_now(by_claim.pods))
        return self._claiming

    def _claiming_now(self, by_claim: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        return by_claim if self._overlay is None else self._overlay.claiming(by_claim)

    def has_node(self, name: str) -> bool:
        """Return true if the node is in the snapshot."""
        return name in self._nodes

    def misses_node(self, name: str) -> bool:
        """Return true if the node is neither in the snapshot nor among the nodes that cannot be decoded."""
        return name not in self._nodes and ("", name) not in self.unreadable.of(NODES)

    def decoder(self, kind: Kind[Object]) -> Callable[[bytes | Raw], Object]:
        """Return the function that decodes objects of a kind with the parts that this snapshot needs."""
        core: Mapping[Kind[Any], Any] = {PODS: self.core.decode_pod, NODES: self.core.decode_node}
        decode: Callable[[bytes | Raw], Object] = core.get(kind, kind.decode)
        return decode

    def count_of(self, kind: Kind[Any]) -> int:
        """Return the number of objects of a kind."""
        if kind == PODS:
            return sum(map(len, self._pods.values()))
        return len(self._nodes) if kind == NODES else self.others.count(kind)

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Return the pending pods that are nominated to the node, without gated pods."""
        return self._nominated_now().get(node_name, {}).values()

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Names of the nodes to which pending pods are nominated, without gated pods."""
        return self._nominated_now().keys()

    def _nominated_now(self) -> Mapping[str, Mapping[str, Pod]]:
        return self._nominated if self._overlay is None else self._overlay.nominated(self._nominated)

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        if self.unreadable:
            self.unreadable.require(kind, namespace, name)
        return self.others.get(kind, namespace, name)

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        for namespace, name in self.others.keys(kind):
            obj = self.others.get(kind, namespace, name)
            if obj is not None:
                yield obj

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        keys = self.others.changed(kind, seen)
        return None if keys is None else [(key, self.others.get(kind, *key)) for key in keys]

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        if self.unreadable:
            self.unreadable.require_all(kind, namespace)
        return self.others.in_namespace(kind, namespace)

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        return self.others.version(kind, namespace)

    def kind_version(self, kind: Kind[Any]) -> int:
        """Return a number that increases with every change of an object of the kind, in any namespace."""
        return self.others.kind_version(kind)

    def mark_unreadable(self, kind: Kind[Any], key: ObjectKey, cause: str) -> None:
        """Record that an object cannot be decoded or stored. Its last known version stays in the snapshot."""
        self.unreadable.add(kind, key, cause)
        self._touch(kind, key)

    def mark_readable(self, kind: Kind[Any], key: ObjectKey) -> None:
        """Record that an unreadable object was deleted, or can be decoded and stored now."""
        self.unreadable.discard(kind, key)
        self._touch(kind, key)

    def _touch(self, kind: Kind[Any], key: ObjectKey) -> None:
        """Treat an object that became readable or unreadable as changed, so that derived data is recomputed."""
        self._changes += 1
        if kind == NODES:
            self._node_changes += 1
            self.node_changes.note(key[1])
        else:
            self.others.touch(kind, key)

    def node_stamp(self, name: str) -> Hashable:
        """Return a value that changes with every version of the node and every change of the pods on it.

        Changes of a pod that plugins do not see are ignored, for example a change of its status; see ``_is_same_pod``.
        """
        info = self._nodes.get(name)
        node = None if info is None else (info.node.uid, info.node.resource_version)
        return node, self.pod_changes.at(name)

    def ends(self, node: str, plugin: str, until: float) -> None:
        """Record that a verdict of the plugin on the node expires at the time ``until`` (seconds since 1970).

        The first call of ``expiries.expire`` after this time marks the node as changed.
        """
        self.expiries.add(node, plugin, until)

    def upsert_node(self, node: Node) -> None:
        """Add or replace a node. An added node gets the pods that were bound to it while it was unknown."""
        self._changes += 1
        info = self._nodes.get(node.name)
        if info is None:
            self._node_changes += 1
            self._nodes[node.name] = NodeInfo(node, self._hidden_pods.pop(node.name, None))
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
        """Add a node from a read outside of the watch, unless it is known or the watch has shown its deletion."""
        if node.name not in self._nodes and node.uid not in self._deleted:
            self.upsert_node(node)

    def delete_node(self, name: str) -> None:
        """Remove a node. Its pods stay in the snapshot, but belong to no node info until the node is added again."""
        info = self._nodes.pop(name, None)
        if info is None:
            return
        self._deleted.add(info.node.uid)
        self._changes += 1
        self._node_changes += 1
        if info.pods:
            self._hidden_pods[name] = info.pods
        self.counts.node(name, info.node, None)
        self._index_node(name, info.node, None)
        self.node_changes.note(name)

    def upsert_pod(self, pod: Pod, *, newest_wins: bool = True) -> None:
        """Add or replace a pod; remove it if it is finished.

        A bound pod is no longer assumed, even if it was assumed on another node. With ``newest_wins``, a version that
        is older than the known version is ignored.
        """
        self._changes += 1
        known = self.pod(pod.namespace, pod.name)
        if newest_wins and known is not None and precedes(pod.resource_version, known.resource_version):
            return  # late event: a newer version of this pod, or a newer pod with the same name, is already known
        if known is not None and known.uid != pod.uid:
            self._forget_pod(known)
            known = None
        pod = self._with_bounded_message(known, self._with_assumption(pod))
        if pod.finished:
            if known is not None:
                self._forget_pod(known)
            return
        self._pods.setdefault(pod.namespace, {})[pod.name] = pod
        self._move(known, pod)
        if pod.node_name and (known is None or not known.node_name):
            for listener in self._on_placed:
                listener(pod.uid)

    def _with_bounded_message(self, known: Pod | None, pod: Pod) -> Pod:
        """Return the pod, without kube-scheduler's message if all messages would exceed ``MOST_MESSAGE_CHARACTERS``."""
        message = pod.waiting.message
        others = self._message_characters - (0 if known is None else len(known.waiting.message))
        if not message or others + len(message) <= MOST_MESSAGE_CHARACTERS:
            return pod
        return replace(pod, waiting=replace(pod.waiting, message=""))

    def on_placed(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a pod that ``upsert_pod`` stores with a node, unless it had one before."""
        self._on_placed.append(listener)

    def upsert_read_pod(self, pod: Pod) -> None:
        """Like ``upsert_pod``, for a pod from a read outside of the watch; ignored if the watch showed its deletion."""
        if pod.uid not in self._deleted:
            self.upsert_pod(pod)

    def _with_assumption(self, pod: Pod) -> Pod:
        """Return the pod, on its intended node if it is assumed. If it is bound or finished, end the assumption."""
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
        """Remove a pod, and remember its UID as deleted. If ``uid`` is not empty, remove only a pod with this UID."""
        known = self.pod(*key)
        self._deleted.add(uid or (known.uid if known is not None else ""))
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
        """Assume a pending pod on a node: count it there, although its bind can still fail."""
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
        """Record that the API server accepted the Binding of an assumed pod."""
        self.assumed.accept(uid)

    def doubt(self, uid: str) -> bool:
        """Record that the outcome of an assumed pod's bind is unknown. Return true if the pod is now unclear."""
        self._changes += 1  # so that decisions that relied on this bind are invalid
        return self.assumed.doubt(uid)

    def confirm(self, uid: str) -> None:
        """End the assumption of a pod, because a read has shown that it is bound to its intended node."""
        self.assumed.remove(uid)

    def forget(self, uid: str) -> None:
        """Make an assumed pod pending again, because it was not bound. No effect if the pod is no longer assumed."""
        assumed = self.assumed.remove(uid)
        if assumed is None:
            return
        self._changes += 1
        pending = replace(assumed, node_name="")
        self._pods[pending.namespace][pending.name] = pending
        self._move(assumed, pending)

    def _seen(self, key: ObjectKey) -> Pod | None:
        """Return the pod as the current overlay shows it; ``None`` if it is unknown or omitted."""
        if self._overlay is not None and key in self._overlay.moves:
            return self._overlay.moves[key][1]
        return self.pod(*key)

    def is_placed_or_nominated(self, uid: str, key: ObjectKey) -> bool:
        """Return true if the pod has this UID, and is on a node or nominated. Otherwise ``without`` has no effect."""
        known = self._seen(key)
        return known is not None and uid in ("", known.uid) and bool(known.node_name or known.nominated_node_name)

    def place_of(self, uid: str, key: ObjectKey) -> str:
        """Return the name of the pod's node; empty if the pod is unknown, has another UID, or is on no node."""
        known = self.pod(*key)
        return known.node_name if known is not None and uid in ("", known.uid) else ""

    def without(self, uid: str, key: ObjectKey) -> AbstractContextManager[None]:
        """Omit a pod during its own evaluation, so that it is not counted as another pod. The block must not await."""
        if not self.is_placed_or_nominated(uid, key):
            return _NO_OVERLAY
        moves, replaced = ({}, {}) if self._overlay is None else (self._overlay.moves, self._overlay.replaced)
        return self._with_overlay(Overlay({**moves, key: (self.pod(*key), None)}, replaced))

    def overlay(
        self, *, without: Iterable[Pod] = (), with_: Iterable[Pod] = (), nodes: Iterable[Node] = ()
    ) -> AbstractContextManager[None]:
        """Omit some pods, add others and change known ``nodes`` during an evaluation. The block must not await.

        Queries of plugins then return the results of a snapshot without the omitted and with the added pods. ``pod``,
        ``pods``, ``pods_in`` and ``base_nodes`` ignore the overlay. Only node infos show the changed nodes: counts by
        domain, indexes and aggregates do not. An added pod replaces a pod of the same name. A nested overlay extends
        the outer one. Results of earlier queries do not change, so the overlay must be opened before PreFilter.
        """
        outer = Overlay({}) if self._overlay is None else self._overlay
        moves, replaced = dict(outer.moves), {**outer.replaced, **{it.name: it for it in nodes}}
        for pod in without:
            _, seen = moves.get(pod.key, (None, self.pod(*pod.key)))
            if seen is not None and seen.uid == pod.uid:
                moves[pod.key] = (self.pod(*pod.key), None)
        for pod in with_:
            moves[pod.key] = (self.pod(*pod.key), None if pod.finished else pod)
        return self._with_overlay(Overlay(moves, replaced))

    @contextmanager
    def _with_overlay(self, overlay: Overlay) -> Iterator[None]:
        before = self._overlay
        self._set_overlay(overlay)
        try:
            yield
        finally:
            self._set_overlay(before)

    def _set_overlay(self, overlay: Overlay | None) -> None:
        self._overlay = self.counts.overlay = overlay
        if self._terms is not None:
            self._terms.set_overlay(overlay)

    def _move(self, old: Pod | None, new: Pod | None) -> None:
        """Update node infos, nominations, counts and indexes from the old to the new version of a pod."""
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
        self._count(old, new)
        if self._indexes:
            self._index_pod(old, new)

    def _index_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Update the indexes of pods on nodes. If node and spec of the pod are unchanged, update only ``_terms``."""
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
        """Update ``_message_characters``, and the indexes of pods by controller and by claim that were built."""
        self._message_characters += _message_length(new) - _message_length(old)
        if self._by_claim is not None:
            self._by_claim.move(old, new)
        if old is not None and old.owner is not None and old.owner.kind in self._controlled:
            _discard(self._controlled[old.owner.kind], old.owner.uid, old.uid)
        if new is not None and new.owner is not None and new.owner.kind in self._controlled:
            self._controlled[new.owner.kind].setdefault(new.owner.uid, {})[new.uid] = new

    def _count(self, old: Pod | None, new: Pod | None) -> None:
        """Update the counts, and the recounts of a check that is in progress."""
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
        """Return the mutable table of the pods on a node, by UID. The node can be unknown."""
        info = self._nodes.get(node_name)
        return info.pods if info is not None else self._hidden_pods.setdefault(node_name, {})

    def _remove_from_node(self, pod: Pod) -> None:
        info = self._nodes.get(pod.node_name)
        if info is not None:
            info.pods.pop(pod.uid, None)
        else:
            _discard(self._hidden_pods, pod.node_name, pod.uid)

    def check(self) -> list[str]:
        """Run all steps of ``checking`` at once, and return each distinct sentence on a difference once."""
        return list(dict.fromkeys(filter(None, self.checking())))

    def checking(self) -> Generator[str, None, None]:
        """Compare derived data with a recount, in small steps. Each step yields a sentence on a difference, or ``""``.

        Compared are the counts, the indexes, and the pods by node, controller and claim. The snapshot can change
        between the steps: each change is applied to the recount too, so it is not reported as a difference.
        """
        recount = PodRecount(self.counts.complete_selections())
        of_terms = None if self._terms is None else self._terms.recount()
        recounts = [it for it in (recount, of_terms) if it is not None]
        self._recounts += recounts
        try:
            for pod in self.pods():
                yield self._check_pod(recounts, pod.key)
            for name in (*self._nodes, *self._hidden_pods):
                yield self._check_node(name)
            for kind, controllers in self._controlled.items():
                for uid in tuple(controllers):
                    yield self._check_controller(kind, uid)
            for key in tuple(self._by_claim.pods) if self._by_claim is not None else ():
                yield self._check_claim(key)
            yield from self.counts.differences(recount)
            for index in self._checked:
                yield from index.differences()
            if self._terms is not None and of_terms is not None:
                yield from self._terms.differences(of_terms)
        finally:
            for finished in recounts:
                self._recounts.remove(finished)

    def _check_pod(self, recounts: Iterable[PodRecount], key: ObjectKey) -> str:
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

    def _check_node(self, name: str) -> str:
        wrong = any(self.pod(*it.key) != it or it.node_name != name for it in self._on_node(name).values())
        return _ON_NODES_DIFFER if wrong else ""

    def _check_controller(self, kind: str, uid: str) -> str:
        pods = self._controlled[kind].get(uid, {}).values()
        right = all(self.pod(*it.key) == it and it.owner is not None and it.owner.uid == uid for it in pods)
        return "" if right else _CONTROLLERS_DIFFER

    def _check_claim(self, key: str) -> str:
        pods = self._by_claim.pods.get(key, {}).values() if self._by_claim is not None else ()
        return "" if all(self.pod(*it.key) == it and key in claim_keys(it) for it in pods) else _BY_CLAIM_DIFFER

    def _on_node(self, name: str) -> Mapping[str, Pod]:
        info = self._nodes.get(name)
        return self._hidden_pods.get(name, {}) if info is None else info.pods


def _if_counted(pod: Pod | None) -> Pod | None:
    return pod if pod is not None and is_counted(pod) else None


def _is_same_pod(old: Pod, new: Pod) -> bool:
    """Return true if two versions of a pod are equal in all fields that plugins read of pods on nodes."""
    same = old.spec is new.spec and old.labels is new.labels and old.terminating == new.terminating
    same = same and old.annotations == new.annotations and old.owner == new.owner
    return same and old.lifecycle == new.lifecycle


def _message_length(pod: Pod | None) -> int:
    return 0 if pod is None else len(pod.waiting.message)


def _discard(table: dict[str, dict[str, Pod]], name: str, uid: str) -> None:
    """Remove the pod with this UID from a row of ``table``. Remove the row too if it is then empty."""
    row = table.get(name)
    if row is not None:
        row.pop(uid, None)
        if not row:
            del table[name]
