"""Definitions of the custom resources that the chart makes: of what it uses of them, with their own types.

They stand for those of prometheus-operator and cert-manager, in the API server and in kubeconform.
"""

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
TRUTH: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer"}


def mapping(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def entries(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def texts() -> Schema:
    return {"type": "object", "additionalProperties": TEXT}


_SELECTOR: Final = mapping(matchLabels=texts())
_KEY: Final = mapping(name=TEXT, key=TEXT, optional=TRUTH)
_ENDPOINT: Final = {
    "port": TEXT,
    "path": TEXT,
    "interval": TEXT,
    "scheme": {"enum": ["http", "https"], "type": "string"},
    "tlsConfig": mapping(insecureSkipVerify=TRUTH),
    "authorization": mapping(type=TEXT, credentials=_KEY),
}
_RULE: Final = mapping(alert=TEXT, record=TEXT, expr=TEXT, labels=texts(), annotations=texts(), **{"for": TEXT})
_GROUP: Final = mapping(name=TEXT, interval=TEXT, rules=entries(_RULE))
_ISSUER: Final = {**mapping(name=TEXT, kind=TEXT, group=TEXT), "required": ["name"]}
_PRIVATE_KEY: Final = mapping(
    algorithm={"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
    size=WHOLE,
    rotationPolicy={"type": "string", "enum": ["Never", "Always"]},
)
_USAGE: Final = {"type": "string", "enum": ["digital signature", "server auth", "client auth"]}

SPECS: Final[dict[tuple[str, str, str], Schema]] = {
    ("monitoring.coreos.com", "PodMonitor", "podmonitors"): {
        **mapping(selector=_SELECTOR, podMetricsEndpoints=entries(mapping(**_ENDPOINT))),
        "required": ["selector"],
    },
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"): {
        **mapping(selector=_SELECTOR, endpoints=entries(mapping(**_ENDPOINT, bearerTokenFile=TEXT))),
        "required": ["selector", "endpoints"],
    },
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"): {
        **mapping(groups=entries(_GROUP)),
        "required": ["groups"],
    },
    ("cert-manager.io", "Issuer", "issuers"): mapping(selfSigned=mapping(), ca=mapping(secretName=TEXT)),
    ("cert-manager.io", "Certificate", "certificates"): {
        **mapping(
            isCA=TRUTH,
            commonName=TEXT,
            secretName=TEXT,
            duration=TEXT,
            renewBefore=TEXT,
            dnsNames=entries(TEXT),
            usages=entries(_USAGE),
            privateKey=_PRIVATE_KEY,
            issuerRef=_ISSUER,
        ),
        "required": ["secretName", "issuerRef"],
    },
}


def definitions() -> list[Schema]:
    """CustomResourceDefinitions, served as v1."""
    return [_definition(group, kind, plural, spec) for (group, kind, plural), spec in SPECS.items()]


def api_versions() -> list[str]:
    """The same as Helm knows the kinds of a cluster."""
    return [f"{group}/v1/{kind}" for group, kind, _ in SPECS]


def whole(spec: Schema) -> Schema:
    """The schema of an object with this spec."""
    return {**mapping(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec), "required": ["spec"]}


def _definition(group: str, kind: str, plural: str, spec: Schema) -> Schema:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole(spec)}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
