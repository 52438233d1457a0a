"""Schema of the value ``config``, made from Homeport's settings.

python -m tests.chart.settings_schema    # writes it into the schema of the chart's values
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.mistakes import field_names
from app.config.sections import parse_names
from app.config.settings import Settings
from app.kube.durations import parse_duration
from tests.chart.rendering import CHART

FILE: Final = CHART / "values.schema.json"

OWN: Final = (
    *("cluster", "kubeconfig", "host", "port", "tls", "insecure", "profiles", "operatorHost", "operatorPort"),
    *("operatorTls", "peerHost", "peerPort", "tlsCertFile", "tlsPrivateKeyFile", "clientCAFile", "selfSigned"),
    *("allowedNames", "httpTimeout", "maxPriority", "leaderElection", "advertiseAddress"),
    *("filterTimeout", "prioritizeTimeout", "preemptTimeout", "bindTimeout"),
)
"""Settings that the chart has the last word on. A sentence of the chart refuses them, whatever they are set to."""

DOCUMENT: Final = ("apiVersion", "kind")
"""Not settings, and refused in the same way."""

_GO_DURATION: Final = r"^\+?(0|([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$"
_NAMES: Final = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
_KEPT: Final = ("type", "enum", "minimum", "maximum", "items", "minItems")
_PROPERTY: Final = re.compile(r'^    "config": \{.*?\},\n(?=    "kubeScheduler")', re.MULTILINE | re.DOTALL)


def schema() -> dict[str, Any]:
    """What Homeport takes, by the name that is written."""
    found = _of_model(Settings)
    found["properties"] |= {it: {} for it in (*OWN, *DOCUMENT)}
    return found


def _of_model(model: type[BaseModel]) -> dict[str, Any]:
    described = model.model_json_schema(by_alias=False)["properties"]
    properties = {
        written: _of_field(model.model_fields[name], described[name]) for written, name in field_names(model).items()
    }
    return {"type": "object", "additionalProperties": False, "properties": dict(sorted(properties.items()))}


def _of_field(field: FieldInfo, described: Mapping[str, Any]) -> Any:
    validators = [getattr(it, "func", None) for it in field.metadata]
    if parse_duration in validators:
        return {"type": "string", "pattern": _GO_DURATION}
    if parse_names in validators:
        return _NAMES
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return _of_model(field.annotation)
    kinds = [_kept(it) for it in described.get("anyOf", [described])]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _kept(described: Mapping[str, Any]) -> dict[str, Any]:
    return {key: described[key] for key in _KEPT if key in described}


def written(text: str) -> str:
    """The text of the chart's schema with that of ``config`` as it is now."""
    properties = ",\n".join(
        f"        {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in schema()["properties"].items()
    )
    head = '    "config": {\n      "type": "object",\n      "additionalProperties": false,\n      "properties": {\n'
    made = f"{head}{properties}\n      }}\n    }},\n"
    replaced, count = _PROPERTY.subn(lambda _: made, text)
    if count != 1:
        raise ValueError(f"{FILE} has no property config before kubeScheduler")
    return replaced


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")
