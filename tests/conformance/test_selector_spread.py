"""SelectorSpread scores as the Go plugin of the last release that has it: see ``docs/conformance.md``."""

import json

from tests.conformance.selector_spread import COUNT, RELEASE, SEED, VECTORS, cases, normalized, ours, recorded


def test_every_score() -> None:
    asked, said = recorded()

    assert normalized(said) == ours(asked)
    assert COUNT == len(said)
    assert sum(len(set(it["score"].values())) > 1 for it in said) > COUNT / 2


def test_a_case_can_be_made_again() -> None:
    asked, _ = recorded()

    assert cases(SEED, COUNT) == asked
    assert (RELEASE, SEED) == tuple(
        json.loads((VECTORS / "provenance.json").read_text())[it] for it in ("kubernetes", "seed")
    )
