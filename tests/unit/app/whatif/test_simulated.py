"""Names, hashes and UIDs of pods that do not exist, and the texts of errors."""

from __future__ import annotations

import re

from app.whatif.simulated import TemplateError, generated_name, template_hash, uid_of


def test_generated_names_differ() -> None:
    names = {generated_name("web-", number) for number in range(10_000)}

    assert 10_000 == len(names)
    assert all(re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz24-9]{5}", it) for it in names)


def test_a_generated_name_is_cut_to_63_characters() -> None:
    assert "w" * 58 == generated_name("w" * 70, 0)[:-5]


def test_hashes_and_uids_depend_on_the_object_alone() -> None:
    assert template_hash(b"a") == template_hash(b"a") != template_hash(b"b")
    assert 10 == len(template_hash(b"a"))
    assert uid_of("Pod", "a", "b") == uid_of("Pod", "a", "b") != uid_of("Job", "a", "b")


def test_the_text_of_an_error() -> None:
    assert "spec.replicas: must be\\x00 3" == str(TemplateError(2, "spec.replicas", "must be\x00 3"))
    assert "give the manifest" == str(TemplateError(-1, "", "give the manifest"))
    assert 1027 == len(TemplateError(0, "x" * 5000, "").field)
