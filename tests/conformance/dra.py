"""Topics of DynamicResources: claims of every shape, on nodes with devices of every shape.

Knows nothing of Homeport. ``dra`` and ``dra-cel`` have what both releases know, and nothing that rests on the order in
which the older one goes through its pools, which is that of a Go map. ``dra-beta`` has what became a default in 1.36:
taints of devices, counters, shared capacity, binding conditions, devices behind extended resources.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Final

from tests.conformance.draft import EPOCH, HARD, PLUGIN, SOFT, ZONE, Draft, Json
from tests.conformance.per_node import TAINTS, NodeDraft

DEVICES: Final = "DynamicResources"
API: Final = "resource.k8s.io/v1"
GPU: Final = "gpu.test"
NIC: Final = "nic.test"
DRIVERS: Final = (GPU, GPU, GPU, NIC)
MODELS: Final = ("a100", "t4", "T4", "h100-80")
VERSIONS: Final = ("1.2.3", "1.10.0", "2.0.0-rc.1", "2.0.0", "0.9.0+build.5")
SIZES: Final = ("16Gi", "40Gi", "80Gi", "81920Mi", "20G", "1500m")
OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
OF_LATE: Final = "2026-01-01T00:00:00Z"
NEVER: Final = "2099-01-01T00:00:00Z"

CLASSES: Final[Mapping[str, Sequence[str]]] = {
    "any": (),
    "gpu": (f"device.driver == '{GPU}'",),
    "nic": (f"device.driver == '{NIC}'",),
    "big": (f"device.driver == '{GPU}'", f"device.capacity['{GPU}'].memory.compareTo(quantity('40Gi')) >= 0"),
    "none": ("false",),
}

SURE: Final = (
    "device.driver == 'gpu.test'",
    "device.driver.startsWith('g') && device.driver.endsWith('.test')",
    "device.attributes['gpu.test'].?model.orValue('') == 'a100'",
    "device.attributes['gpu.test'].?numa.orValue(7) == 0",
    "has(device.attributes['gpu.test'].model) && device.attributes['gpu.test'].model in ['a100', 't4']",
    "'gpu.test' in device.attributes && 'numa' in device.attributes['gpu.test']",
    "'gpu.test' in device.capacity && device.capacity['gpu.test'].memory.isGreaterThan(quantity('20Gi'))",
    "device.attributes['absent.test'].?x.hasValue() || device.driver != 'nic.test'",
    "true",
)
"""Without error on any device."""

TELLING: Final = (
    *SURE,
    "device.attributes['gpu.test'].model == 'a100'",
    "device.attributes['gpu.test'].model != 't4'",
    "device.attributes['gpu.test'].numa == 0",
    "device.attributes['gpu.test'].index < 2",
    "device.attributes['gpu.test'].index >= 1 && device.attributes['gpu.test'].index <= 2",
    "device.attributes['gpu.test'].index % 2 == 0",
    "device.attributes['gpu.test'].index * 3 - 1 > 4 / 2",
    "-device.attributes['gpu.test'].index == -1",
    "device.attributes['gpu.test'].index / 0 == 1",
    "device.attributes['gpu.test'].index == 1.0",
    "device.attributes['gpu.test'].index < 1.5",
    "device.attributes['gpu.test'].odd == 1",
    "device.attributes['gpu.test'].odd == 'x'",
    "device.attributes['gpu.test'].odd < 2",
    "device.attributes['gpu.test'].odd > 'a'",
    "device.attributes['gpu.test'].odd",
    "!device.attributes['gpu.test'].odd",
    "device.attributes['gpu.test'].odd || device.attributes['gpu.test'].index == 0",
    "device.attributes['gpu.test'].index == 0 || device.attributes['gpu.test'].odd",
    "device.attributes['gpu.test'].odd && false",
    "device.attributes['gpu.test'].absent == 1 && device.attributes['gpu.test'].odd < 2",
    "device.attributes['gpu.test'].odd < 2 && device.attributes['gpu.test'].absent == 1",
    "device.attributes['gpu.test'].odd ? true : false",
    "device.attributes['gpu.test'].odd + 1 == 2",
    "device.attributes['gpu.test'].odd - 1 == 0",
    "device.attributes['gpu.test'].odd * 2 == 2",
    "device.attributes['gpu.test'].odd / 1 == 1",
    "device.attributes['gpu.test'].odd % 2 == 1",
    "-device.attributes['gpu.test'].odd == -1",
    "1 + device.attributes['gpu.test'].odd == 2",
    "'a' + device.attributes['gpu.test'].odd == 'ax'",
    "device.attributes['gpu.test'].odd.startsWith('x')",
    "device.attributes['gpu.test'].odd.size() == 1",
    "device.attributes['gpu.test'].odd.major() == 1",
    "device.attributes['gpu.test'].odd.compareTo(quantity('1')) == 0",
    "device.attributes['gpu.test'].odd.foo == 1",
    "device.attributes['gpu.test'].odd[0] == 1",
    "1 in device.attributes['gpu.test'].odd",
    "device.attributes['gpu.test'].odd in ['x', 'y']",
    "device.attributes['gpu.test'].odd.?foo.hasValue()",
    "device.attributes['gpu.test'].odd.lowerAscii() == 'x'",
    "device.attributes['gpu.test'].odd.matches('^x$')",
    "string(device.attributes['gpu.test'].odd) == '1'",
    "isQuantity(device.attributes['gpu.test'].odd)",
    "device.attributes['gpu.test'].link",
    "has(device.attributes['gpu.test'].link) ? device.attributes['gpu.test'].link : device.driver == 'nic.test'",
    "!has(device.attributes['gpu.test'].link)",
    "has(device.attributes['absent.test'].x)",
    "device.attributes['absent.test'].x == 1",
    "device.attributes['gpu.test']['model'] == 't4'",
    "device.attributes['gpu.test'][?'model'].hasValue()",
    "device.attributes['gpu.test'].?absent.orValue(1) == 1",
    "optional.of(1).value() == 1 && !optional.none().hasValue()",
    "device.attributes['gpu.test'].?absent.or(device.attributes['gpu.test'].?model).value() == 't4'",
    "device.attributes['gpu.test'].?absent.value() == 1",
    "device.attributes['other.test'].speed > 5",
    "size(device.attributes['gpu.test']) > 3",
    "device.attributes['gpu.test'].size() == 4",
    "device.attributes['gpu.test'].model.size() == 2",
    "device.attributes['gpu.test'].model.lowerAscii() == 't4' && device.driver.upperAscii() == 'GPU.TEST'",
    "device.attributes['gpu.test'].model.contains('100')",
    "device.attributes['gpu.test'].model.lowerAscii().matches('^.*100.*$')",
    "device.attributes['gpu.test'].model.matches('^[a-h]100')",
    "device.attributes['gpu.test'].model.matches('^(t|T)4$')",
    "device.attributes['gpu.test'].model + '!' == 't4!'",
    "device.attributes['gpu.test'].version.isGreaterThan(semver('1.2.3'))",
    "device.attributes['gpu.test'].version.compareTo(semver('2.0.0')) < 0",
    "device.attributes['gpu.test'].version == semver('2.0.0')",
    "device.attributes['gpu.test'].version.major() == 1 && device.attributes['gpu.test'].version.minor() > 3",
    "device.attributes['gpu.test'].version.patch() == 3",
    "isSemver('1.2.3') && !isSemver('1.2') && !isSemver('01.2.3')",
    "device.capacity['gpu.test'].memory.compareTo(quantity('40Gi')) >= 0",
    "device.capacity['gpu.test'].memory == quantity('81920Mi')",
    "device.capacity['gpu.test'].memory.isLessThan(quantity('20G'))",
    "device.capacity['gpu.test'].memory.isInteger() && device.capacity['gpu.test'].memory.asInteger() > 1000",
    "device.capacity['gpu.test'].memory.asInteger() > 1000",
    "sign(device.capacity['gpu.test'].memory.add(quantity('1Gi')).sub(100)) == 1",
    "sign(device.capacity['gpu.test'].absent) == 1",
    "sign(device.capacity['absent.test'].memory) == 1",
    "isQuantity('1Ki') && !isQuantity('one')",
    "cel.bind(a, device.attributes['gpu.test'], a.model == 't4' || a.numa == 1)",
    "['a100', 't4'].exists(m, m == device.attributes['gpu.test'].model)",
    "device.attributes['gpu.test'].exists(k, k == 'odd')",
    "device.attributes['gpu.test'].all(k, k != 'odd' && k != 'link')",
    "[0, 1, 2].exists_one(i, i == device.attributes['gpu.test'].index)",
    "[1, 2].all(i, device.attributes['gpu.test'].absent == i)",
    "string(device.attributes['gpu.test'].index) == '1'",
    "device.attributes['gpu.test'].index in [1, 2]",
    "device.attributes['gpu.test'].model in device.attributes['gpu.test']",
    "device.attributes['gpu.test'] == device.attributes['gpu.test']",
    "device.attributes['gpu.test'].model == device.attributes['gpu.test'].model",
    "(device.driver == 'nic.test' ? 1 : 2) + 1 == 3",
    "[[1, 2], [3]][1][0] == 3 && [1] + [2] == [1, 2]",
    "[1][device.attributes['gpu.test'].index] == 1",
    "'\\u0061100' == device.attributes['gpu.test'].model",
    'device.attributes["gpu.test"].model == r"t4"  // a comment',
)


class DeviceDraft(NodeDraft):
    """A pod with claims. ``beta``: what became a default in 1.36 is drawn too."""

    def __init__(self, random: Random, *plugins: str, beta: bool = False) -> None:
        self.beta = beta
        self.one_slice = random.random() < 0.6
        self.expressions = SURE if random.random() < 0.5 or not (self.one_slice or beta) else TELLING
        self.claims: list[Json] = []
        self.slices: list[Json] = []
        self.devices: list[tuple[str, str, str, str]] = []
        self.behind: list[str] = []
        self.many = False
        super().__init__(random, *plugins, odd=0)
        self.bad_pools = 1 if self.chance(0.15) else 0
        self.add_classes()
        self.add_slices()
        self.add_other_claims()
        self.add_claims()
        self.objects += [*self.slices, *self.claims]
        if self.chance(0.03):
            for point in self.random.choice((("preFilter",), ("filter", "score"), ("score",))):
                self.config["plugins"][point] = {"disabled": [{"name": DEVICES}]}

    def _node_count(self) -> int:
        return self.weighted({1: 1, 3: 15, 4: 25, 6: 30, 8: 20, 12: 10})

    # What there is.

    def add_classes(self) -> None:
        for name, usual in CLASSES.items():
            expressions = usual
            if name == "big" and not self.one_slice and not self.beta:  # an error there depends on the order of pools
                expressions = (f"device.driver == '{GPU}' && '{GPU}' in device.capacity", *usual[1:])
            if self.chance(0.99):
                spec: Json = self._maybe("selectors", list(map(_cel, expressions)))
                if self.beta and name in ("gpu", "big") and self.chance(0.6):
                    spec["extendedResourceName"] = "gpu.test/device"
                    self.behind.append(name)
                found = _cluster_object("DeviceClass", name, spec)
                if self.chance(0.3):
                    found["metadata"]["creationTimestamp"] = "2026-01-05T00:00:00Z"
                self.objects.append(found)

    def add_slices(self) -> None:
        for node in self.nodes:
            name = node["metadata"]["name"]
            for driver in (GPU,) if self.one_slice else self.some((GPU, NIC), 1, 2):
                if self.chance(0.75):
                    self._pool(driver, name, {"nodeName": name}, 1 if self.one_slice else self.random.choice((1, 1, 2)))
        if not self.one_slice and self.chance(0.5):
            self._pool(self.random.choice(DRIVERS), "net", self._wide(), self.random.choice((1, 2)))
        if self.beta and self.chance(0.25):
            self._pool(GPU, "split", {"perDeviceNodeSelection": True}, 1)

    def _wide(self) -> Json:
        if self.chance(0.4):
            return {"allNodes": True}
        values = self.some(("t0", "t1", "t2"), 1, 2)
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": values}]}
        return {"nodeSelector": {"nodeSelectorTerms": [term]}}

    def _pool(self, driver: str, pool: str, where: Json, count: int) -> None:
        """A pool of some slices; perhaps incomplete, or about to be replaced, or with a name twice."""
        generation = self.random.choice((1, 1, 3))
        said = count
        if self.bad_pools and self.chance(0.3):
            self.bad_pools -= 1
            said += 1
        counters = self.beta and self.chance(0.35)
        if counters:
            said += 1
            spec = {"sharedCounters": [self._counter_set(it) for it in ("mem", "eng")]}
            self._slice(f"{driver}-{pool}-c", driver, pool, generation, said, {**where, **spec})
        first = 0
        for index in range(count):
            most = self.random.choice((1, 2, 3, 4, 5))
            devices = [self._device(driver, first + it, counters=counters) for it in range(most)]
            if "perDeviceNodeSelection" in where:
                for device in devices:
                    device.update({"nodeName": self.node_name()} if self.chance(0.7) else {"allNodes": True})
            if not (index and self.bad_pools and self.chance(0.5)):
                first += most
            else:
                self.bad_pools -= 1
            self._slice(f"{driver}-{pool}-{index}", driver, pool, generation, said, {**where, "devices": devices})
            self.devices += [(driver, pool, it["name"], where.get("nodeName", "")) for it in devices]
        if self.chance(0.1):
            old = [self._device(driver, it) for it in range(2)]
            self._slice(f"{driver}-{pool}-old", driver, pool, 0, 1, {**where, "devices": old} | _each_on(where, old))

    def _counter_set(self, name: str) -> Json:
        return {"name": name, "counters": {"slots": {"value": str(self.random.choice((1, 2, 3, 4)))}}}

    def _slice(self, name: str, driver: str, pool: str, generation: int, count: int, spec: Json) -> None:
        found = {"name": pool, "generation": generation, "resourceSliceCount": count}
        self.slices.append(_cluster_object("ResourceSlice", name, {"driver": driver, "pool": found, **spec}))

    def _device(self, driver: str, index: int, *, counters: bool = False) -> Json:
        attributes: Json = {"index": {"int": index}}
        for name, value, likely in (
            ("model", {"string": self.random.choice(MODELS)}, 0.85),
            ("numa", {"int": self.random.choice((0, 0, 1))}, 0.85),
            ("link", {"bool": self.chance(0.5)}, 0.4),
            ("version", {"version": self.random.choice(VERSIONS)}, 0.7),
            ("other.test/speed", {"int": self.random.choice((1, 10))}, 0.4),
            (f"{driver}/rack", {"string": self.random.choice("ab")}, 0.3),
            ("odd", self.random.choice(({"int": 1}, {"string": "x"}, {"bool": True}, {"version": "1.0.0"})), 0.5),
        ):
            if self.chance(likely):
                attributes[name] = value
        found: Json = {"name": f"d{index}", "attributes": attributes}
        if self.chance(0.85):
            found["capacity"] = {"memory": {"value": self.random.choice(SIZES)}}
        if self.beta:
            self._beta_device(found, counters=counters)
        return found

    def _beta_device(self, device: Json, *, counters: bool) -> None:
        if self.chance(0.25):
            taint = {"key": self.random.choice("ab"), "effect": self.random.choice(("NoSchedule", "NoExecute", "None"))}
            device["taints"] = [{**taint, "value": self.random.choice(("", "x")), "timeAdded": EPOCH}]
        if counters and self.chance(0.8):
            sets = self.some(("mem", "eng"), 1, 2)
            slots = {"slots": {"value": str(self.random.choice((1, 1, 2)))}}
            device["consumesCounters"] = [{"counterSet": name, "counters": slots} for name in sets]
        if self.chance(0.35):
            device["allowMultipleAllocations"] = True
            for capacity in device.get("capacity", {}).values():
                capacity["value"] = self.random.choice(("16Gi", "40Gi", "80Gi"))
                capacity.update(self._maybe("requestPolicy", self._policy()))
        if self.chance(0.1):
            device.update(bindingConditions=["example.com/ready"], bindingFailureConditions=["example.com/failed"])

    def _policy(self) -> Json:
        match self.random.choice(("none", "default", "values", "range", "range", "step")):
            case "default":
                return {"default": "4Gi"}
            case "values":
                return {"default": "4Gi", "validValues": ["2Gi", "4Gi", "16Gi"]}
            case "range":
                return {"default": "2Gi", "validRange": {"min": "1Gi", "max": "12Gi"}}
            case "step":
                return {"default": "4Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}}
        return {}

    # What is asked for.

    def add_other_claims(self) -> None:
        """Claims of others, which have some of the devices."""
        share = self.random.choice((0, 0.2, 0.4, 0.6))
        taken = [it for it in self.devices if self.chance(share)]
        for index, (driver, pool, device, node) in enumerate(taken):
            claim = self._claim(f"taken{index}", self.random.choice(("default", "team-a")), [self._exactly("r")])
            self._allocate(claim, [("r", driver, pool, device)], node)
            claim["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": f"other-{index}"}]

    def add_claims(self) -> None:
        named: list[Json] = []
        statuses: list[Json] = []
        count = self.weighted({0: 2, 1: 70, 2: 22, 3: 5})
        self.many = count > 1
        alternatives = self.one_slice or self.beta
        all_allocated = self.chance(0.15)
        for index in range(count):
            name = f"mine{index}"
            claim = self._claim(name, self.namespace, self._requests(alternatives or (count == 1 and self.chance(0.5))))
            self._constrain(claim)
            entry: Json = {"name": f"c{index}", "resourceClaimName": name}
            if self.chance(0.25):
                self._from_template(entry, claim, statuses)
            if self.chance(0.2) if self.beta else all_allocated:  # the older release cannot score some of each
                self._allocate_mine(claim)
            self._spoil(claim)
            named.append(entry)
        self.pod["spec"].update(self._maybe("resourceClaims", named))
        self.pod["status"].update(self._maybe("resourceClaimStatuses", statuses))
        if self.beta and self.chance(0.35):
            self._ask_for_resources()

    def _claim(self, name: str, namespace: str, requests: list[Json]) -> Json:
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"claim-{namespace}-{name}",
            "creationTimestamp": EPOCH,
        }
        spec = {"devices": {"requests": requests}}
        claim: Json = {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        self.claims.append(claim)
        return claim

    def _requests(self, alternatives: bool) -> list[Json]:
        few = {1: 85, 2: 15} if self.many else {1: 65, 2: 28, 3: 6}  # whatever takes a search too long is refused
        if self.beta:
            few = {1: 1} if self.many else {1: 70, 2: 30}
        count = self.weighted(few) if self.one_slice or self.beta or not alternatives else 1
        if alternatives and not self.one_slice and not self.beta:
            return [self._first_available("r0")]
        return [
            self._first_available(f"r{it}") if alternatives and self.chance(0.35) else self._exactly(f"r{it}")
            for it in range(count)
        ]

    def _exactly(self, name: str) -> Json:
        found = self._asked()
        if self.chance(0.06):
            found["adminAccess"] = self.chance(0.7)
        return {"name": name, "exactly": found}

    def _first_available(self, name: str) -> Json:
        some = [{"name": f"s{it}", **self._asked()} for it in range(self.random.choice((1, 2, 2, 3, 4)))]
        for each in () if self.beta else some[1:]:  # the older release mistakes later ones for the first then
            each.update(allocationMode="ExactCount", count=each.get("count", 1))
        return {"name": name, "firstAvailable": some}

    def _asked(self) -> Json:
        found: Json = {"deviceClassName": self.weighted({"gpu": 50, "any": 20, "big": 20, "nic": 5, "none": 0.5})}
        if self.chance(0.12):
            found["allocationMode"] = "All"
        else:
            found.update(allocationMode="ExactCount", count=self.weighted({1: 75, 2: 20, 3: 3, 33: 0.2}))
        if self.chance(0.4):
            found["selectors"] = [
                _cel(self.random.choice(self.expressions)) for _ in range(self.random.choice((1, 1, 2)))
            ]
        if self.beta and self.chance(0.3):
            found["tolerations"] = [self._device_toleration()]
        if self.beta and self.chance(0.3):
            found["capacity"] = {
                "requests": {"memory": self.random.choice(("1Gi", "3Gi", "4Gi", "5Gi", "17Gi", "40Gi"))}
            }
        return found

    def _device_toleration(self) -> Json:
        effect = self._maybe("effect", self.random.choice(("", "NoSchedule", "NoExecute")))
        if self.chance(0.3):
            return {"operator": "Exists", **effect}
        key = {"key": self.random.choice("ab")}
        if self.chance(0.5):
            return {**key, "operator": "Exists", **effect}
        return {**key, "operator": "Equal", **self._maybe("value", self.random.choice(("", "x"))), **effect}

    def _constrain(self, claim: Json) -> None:
        if not self.chance(0.2):
            return
        names = [it["name"] for it in claim["spec"]["devices"]["requests"]]
        names += [
            f"{it['name']}/{sub['name']}"
            for it in claim["spec"]["devices"]["requests"]
            for sub in it.get("firstAvailable", ())
        ]
        attribute = f"{GPU}/{self.random.choice(('numa', 'model', 'link', 'version', 'rack', 'index', 'absent'))}"
        kind = "distinctAttribute" if self.beta and self.chance(0.3) else "matchAttribute"
        found: Json = {kind: self.weighted({attribute: 8, "other.test/speed": 2})}
        if self.chance(0.4):
            found["requests"] = self.some(names, 1, 2)
        claim["spec"]["devices"]["constraints"] = [found]
        if not self.one_slice and not self.beta:  # which device is told of depends on the order there
            for each in _every(claim):
                each.update(allocationMode="ExactCount", count=each.get("count", 1))

    def _allocate(self, claim: Json, devices: Sequence[tuple[str, str, str, str]], node: str) -> None:
        results: list[Json] = [
            {"request": request, "driver": driver, "pool": pool, "device": device}
            for request, driver, pool, device in devices
        ]
        if self.chance(0.08):
            results[0]["adminAccess"] = True
        if self.beta:
            for it in results:
                if self.chance(0.4):
                    it["shareID"] = "11111111-2222-3333-4444-555555555555"
                    it["consumedCapacity"] = {"memory": self.random.choice(("1Gi", "4Gi", "10Gi", "30Gi"))}
        found: Json = {"devices": {"results": results}, "allocationTimestamp": EPOCH}
        if node:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        elif self.chance(0.6):
            found["nodeSelector"] = self._wide().get(
                "nodeSelector", {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
            )
        claim["status"] = {"allocation": found}

    def _allocate_mine(self, claim: Json) -> None:
        node = self.node_name() if self.chance(0.7) else ""
        request = claim["spec"]["devices"]["requests"][0]
        name = request["name"]
        if "firstAvailable" in request:
            name += "/" + self.random.choice(request["firstAvailable"])["name"]
        self._allocate(claim, [(name, GPU, "elsewhere", "d0")], node)
        if self.chance(0.6):
            pod = self.pod["metadata"]
            uid = pod["uid"] if self.chance(0.7) else "somebody"
            claim["status"]["reservedFor"] = [{"resource": "pods", "name": pod["name"], "uid": uid}]
        if self.beta and self.chance(0.5):
            self._bind_under_conditions(claim)

    def _bind_under_conditions(self, claim: Json) -> None:
        allocation = claim["status"]["allocation"]
        (result,) = allocation["devices"]["results"]
        result.update(bindingConditions=["example.com/ready"], bindingFailureConditions=["example.com/failed"])
        allocation["allocationTimestamp"] = self.random.choice((OF_LATE, NEVER))
        if self.chance(0.8):
            said = [
                {"type": f"example.com/{name}", "status": self.random.choice(("True", "False")), "reason": "r"}
                | {"message": "", "lastTransitionTime": EPOCH}
                for name in ("ready", "failed")
                if self.chance(0.6)
            ]
            where = {key: result[key] for key in ("driver", "pool", "device")}
            claim["status"]["devices"] = [{**where, "conditions": said}]

    def _from_template(self, entry: Json, claim: Json, statuses: list[Json]) -> None:
        entry["resourceClaimTemplateName"] = "template"
        name = entry.pop("resourceClaimName")
        owner: Json = {"apiVersion": "v1", "kind": "Pod", "name": "pending", "uid": self.pod["metadata"]["uid"]}
        controller: bool = True
        if self.beta:  # the older release says it in other words
            owner["uid"] = self.weighted({owner["uid"]: 9, "another": 1})
            controller = self.chance(0.93)
        claim["metadata"]["ownerReferences"] = [{**owner, "controller": controller}]
        if self.chance(0.96):
            statuses.append(
                {"name": entry["name"], **self._maybe("resourceClaimName", name if self.chance(0.92) else "")}
            )

    def _spoil(self, claim: Json) -> None:
        if self.chance(0.02):
            self.claims.remove(claim)
        elif self.chance(0.02):
            claim["metadata"].update(
                deletionTimestamp="2026-01-02T00:00:00Z", deletionGracePeriodSeconds=0, finalizers=["example.com/keep"]
            )
        elif self.chance(0.02):
            next(iter(_every(claim)))["deviceClassName"] = "absent"

    # Extended resources.

    def _ask_for_resources(self) -> None:
        """Of containers of all sorts; some nodes have a device plugin for it."""
        known = ["gpu.test/device", "plain.test/thing", f"{OF_CLASS}any"]
        if len(self.behind) < 2:  # of two for one resource, one may lose its own as well
            known.append(f"{OF_CLASS}gpu")
        resources = self.some(known, 1, 2)
        self._add_containers()
        spec = self.pod["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            asked = {name: str(self.random.choice((1, 1, 2, 3))) for name in resources if self.chance(0.7)}
            if asked:
                both = {"cpu": "1", **asked}
                container["resources"] = {"requests": both, "limits": dict(both)}
        for node, name in product(self.nodes, resources):
            if self.chance(0.3):
                node["status"]["allocatable"][name] = node["status"]["capacity"][name] = "4"
        if self.chance(0.1):
            self._stale_claim()

    def _add_containers(self) -> None:
        spec = self.pod["spec"]
        for index in range(self.random.choice((0, 0, 1, 2))):
            init = {"name": f"init{index}", "image": "registry.test/app:v1"}
            if self.chance(0.3):
                init["restartPolicy"] = "Always"
            spec.setdefault("initContainers", []).append(init)
        if self.chance(0.3):
            spec["containers"].append({"name": "second", "image": "registry.test/app:v1"})

    def _stale_claim(self) -> None:
        """Of a cycle before, in which the pod could not be bound."""
        claim = self._claim(
            "pending-extended-resources-x7",
            self.namespace,
            [
                {
                    "name": "container-0-request-1",
                    "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                }
            ],
        )
        claim["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "pending", "uid": self.pod["metadata"]["uid"]}
        claim["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


def _every(claim: Json) -> list[Json]:
    """All that is asked for, alternatives included."""
    requests = claim["spec"]["devices"]["requests"]
    return [each for it in requests for each in ([it["exactly"]] if "exactly" in it else it["firstAvailable"])]


def _each_on(where: Json, devices: list[Json]) -> Json:
    if "perDeviceNodeSelection" in where:
        for device in devices:
            device["allNodes"] = True
    return {}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _cluster_object(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": EPOCH}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


class ExpressionDraft(DeviceDraft):
    """A selector, asked about one device of each node."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, DEVICES)
        self.config["plugins"] = {key: it for key, it in self.config["plugins"].items() if key == "multiPoint"}
        self.pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "mine"}]
        kept = [it for it in self.objects if it["kind"] in ("Node", "DeviceClass") and it["metadata"]["name"] != "any"]
        self.objects = [*kept, _cluster_object("DeviceClass", "any", {})]
        self.claims, self.slices = [], []
        asked = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        asked["selectors"] = [_cel(self.random.choice(TELLING))]
        self._claim("mine", self.namespace, [{"name": "r", "exactly": asked}])
        for node in self.nodes:
            name = node["metadata"]["name"]
            device = self._device(GPU, self.random.choice((0, 1, 2, 3)))
            where = {"nodeName": name, "devices": [device]}
            self._slice(f"s-{name}", GPU if self.chance(0.8) else NIC, name, 1, 1, where)
        self.objects += [*self.slices, *self.claims]


def _beside_others(random: Random, *, beta: bool = False) -> Draft:
    """Alone, or beside a plugin that refuses nodes too."""
    others = random.choice(((), (), (TAINTS,), (PLUGIN,)))
    draft = DeviceDraft(random, *others, DEVICES, beta=beta)
    if PLUGIN in others:
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 1, SOFT: 1})
    return draft.populate()


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "dra": _beside_others,
    "dra-cel": ExpressionDraft,
    "dra-beta": partial(_beside_others, beta=True),
}

ONLY_IN: Final[Mapping[str, tuple[str, ...]]] = {"dra-beta": ("1.36.3",)}
"""Topics of what only some releases have by default."""
