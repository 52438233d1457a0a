"""A plugin's forms are read off the bases it names. What contradicts itself: `tests/contract/test_reads.py`."""

from app.framework.parts import Part
from app.framework.spec import Reads
from app.runtime.slots import PluginSlot, has_unknown_inputs
from tests.fakes import HalvesInBatch, Prepares, Rejects, RejectsInBatch, RejectsUncertain, ScoresNodes


def test_a_slot_has_what_its_plugin_has() -> None:
    plain, batch = PluginSlot.of("A", Rejects("A")), PluginSlot.of("B", RejectsInBatch("B"))
    uncertain = PluginSlot.of("C", RejectsUncertain("C"))
    scores = PluginSlot.of("D", HalvesInBatch("D", {}), weight=3)

    assert (False, True, False) == (plain.filters_in_batch, batch.filters_in_batch, batch.any_names)
    assert (None, None, None) == (plain.depends_on, plain.filter_certain, uncertain.signature)
    assert None not in (uncertain.depends_on, uncertain.filter_certain)
    assert (3, True, True) == (scores.weight, scores.scores_in_batch, scores.normalizes)


def test_who_reads_the_cluster_sees_all_of_a_pod_and_is_not_kept() -> None:
    reading = PluginSlot.of("A", Rejects("A"))
    one, other = (PluginSlot.of(it, Rejects(it), reads=Reads.NODE, parts=frozenset({Part.LABELS})) for it in "BC")

    assert (None, False) == (reading.parts, reading.is_cached)
    assert one.is_cached
    assert one.parts is other.parts


def test_which_plugins_say_nothing() -> None:
    assert has_unknown_inputs(Rejects, Reads.CLUSTER)
    assert not has_unknown_inputs(lambda: Rejects, Reads.CLUSTER), "a factory names no bases"
    assert not has_unknown_inputs(Rejects, Reads.NODE)
    assert has_unknown_inputs(RejectsInBatch, Reads.CLUSTER)
    assert has_unknown_inputs(Prepares, Reads.CLUSTER)
    assert not has_unknown_inputs(RejectsUncertain, Reads.CLUSTER)
    assert not has_unknown_inputs(ScoresNodes, Reads.CLUSTER)
