"""The documented fields of the custom resources that the manifests use, closed: a field that is mistyped is no field.

Operators drop unknown fields without a word, so their own models do not refuse them. These schemas do.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?$"}
SECONDS: Schema = {"type": "integer", "minimum": 0}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: Schema = {"type": "string", "pattern": r"^(\d+(ms|s|m|h|d|w|y))+$"}


def closed(required: str, **fields: Schema) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": fields}


def many(item: Schema) -> Schema:
    """Return the schema of a list that is not empty."""
    return {"type": "array", "minItems": 1, "items": item}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    """Return the schema of a custom resource."""
    metadata = closed("name", name=TEXT, namespace=TEXT, labels=LABELS, annotations=LABELS)
    head = {"apiVersion": {"const": version}, "kind": {"const": kind}}
    return closed("apiVersion kind metadata spec", **head, metadata=metadata, spec=spec)


#: What each trigger may be told.
PROMETHEUS = closed(
    "serverAddress query threshold",
    serverAddress=TEXT,
    query=TEXT,
    threshold=NUMBER,
    activationThreshold=NUMBER,
    ignoreNullValues={"enum": ["true", "false"]},
    namespace=TEXT,
    authModes=TEXT,
    unsafeSsl={"enum": ["true", "false"]},
)
METRICS_API = closed(
    "url valueLocation targetValue",
    url=TEXT,
    valueLocation=TEXT,
    format={"enum": ["json", "xml", "yaml", "prometheus"]},
    targetValue=NUMBER,
    activationTargetValue=NUMBER,
    authMode={"enum": ["apiKey", "basic", "tls", "bearer"]},
    unsafeSsl={"enum": ["true", "false"]},
)


def trigger(kind: str, metadata: Schema) -> Schema:
    """Return the schema of one trigger."""
    return closed(
        "type metadata",
        type={"const": kind},
        name=TEXT,
        metricType={"enum": ["AverageValue", "Value"]},
        metadata=metadata,
        authenticationRef=closed("name", name=TEXT, kind={"enum": ["TriggerAuthentication"]}),
    )


#: One direction of the behaviour of a HorizontalPodAutoscaler.
DIRECTION = closed(
    "",
    stabilizationWindowSeconds=SECONDS,
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies=many(
        closed("type value periodSeconds", type={"enum": ["Pods", "Percent"]}, value=SECONDS, periodSeconds=SECONDS)
    ),
)

SCALED_OBJECT = resource(
    "keda.sh/v1alpha1",
    "ScaledObject",
    closed(
        "scaleTargetRef triggers",
        scaleTargetRef=closed("kind name", apiVersion=TEXT, kind=TEXT, name=TEXT),
        pollingInterval=SECONDS,
        cooldownPeriod=SECONDS,
        initialCooldownPeriod=SECONDS,
        idleReplicaCount=SECONDS,
        minReplicaCount=SECONDS,
        maxReplicaCount=SECONDS,
        fallback=closed(
            "failureThreshold replicas",
            failureThreshold=SECONDS,
            replicas=SECONDS,
            behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
        ),
        advanced=closed(
            "",
            restoreToOriginalReplicaCount={"type": "boolean"},
            horizontalPodAutoscalerConfig=closed("", behavior=closed("", scaleUp=DIRECTION, scaleDown=DIRECTION)),
        ),
        triggers=many({"oneOf": [trigger("prometheus", PROMETHEUS), trigger("metrics-api", METRICS_API)]}),
    ),
)

TRIGGER_AUTHENTICATION = resource(
    "keda.sh/v1alpha1",
    "TriggerAuthentication",
    closed("", secretTargetRef=many(closed("parameter name key", parameter=TEXT, name=TEXT, key=TEXT))),
)

SERVICE_MONITOR = resource(
    "monitoring.coreos.com/v1",
    "ServiceMonitor",
    closed(
        "selector endpoints",
        jobLabel=TEXT,
        selector=closed("matchLabels", matchLabels=LABELS),
        endpoints=many(closed("port", port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION)),
    ),
)

RULE = closed("expr", record=TEXT, alert=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS, **{"for": DURATION})

PROMETHEUS_RULE = resource(
    "monitoring.coreos.com/v1",
    "PrometheusRule",
    closed("groups", groups=many(closed("name rules", name=TEXT, interval=DURATION, rules=many(RULE)))),
)

#: The schema of each kind.
SCHEMAS = {
    "ScaledObject": SCALED_OBJECT,
    "TriggerAuthentication": TRIGGER_AUTHENTICATION,
    "ServiceMonitor": SERVICE_MONITOR,
    "PrometheusRule": PROMETHEUS_RULE,
}
