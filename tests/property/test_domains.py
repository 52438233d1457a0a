"""The smallest count of any domain, as kept, equals the smallest counted out, whatever a dry run changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.cache.cluster import Cluster
from app.kube.core_decoding import decode_node, decode_pod
from app.kube.selectors import EVERYTHING
from tests.builders import ZONE, encoded, node_object, pod_object
from tests.strategies import examples

ZONES = "abcde"
counts_by_zone = st.dictionaries(st.sampled_from(ZONES), st.integers(0, 4))
deltas = st.dictionaries(st.sampled_from(ZONES), st.integers(-5, 5).filter(bool))


@settings(derandomize=True, max_examples=examples(300))
@given(counts_by_zone, st.lists(deltas, max_size=4), st.integers(0, 5))
def test_the_minimum_and_the_domains_above_a_limit(
    counts: dict[str, int], changes: list[dict[str, int]], limit: int
) -> None:
    cluster = Cluster()
    for zone, count in counts.items():
        cluster.upsert_node(decode_node(encoded(node_object(f"n{zone}", zone=zone))))
        for number in range(count):
            cluster.upsert_pod(decode_pod(encoded(pod_object(f"p{zone}-{number}", node=f"n{zone}"))))
    domains = cluster.counts.domains("default", EVERYTHING, ZONE, frozenset({ZONE}))

    assert min(counts.values(), default=0) == domains.minimum()
    assert {zone for zone, count in counts.items() if count > limit} == set(domains.above(limit))
    for change in changes:
        shifted = {zone: counts.get(zone, 0) + change.get(zone, 0) for zone in counts.keys() | change.keys()}
        assert min(shifted.values(), default=0) == domains.minimum(change)
