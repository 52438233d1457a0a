{{/* Endpoints of a pod that are scraped. kube-scheduler creates a certificate at each start, so it cannot be verified.
     It authenticates its callers: a ServiceMonitor sends Prometheus' token, a PodMonitor the token in a Secret. */}}
{{- define "homeport.endpoints" -}}
{{- $authorization := .root.Values.monitoring.kubeSchedulerAuthorization -}}
- port: operator
  path: /metrics
  interval: {{ .interval }}
{{- if and (eq .root.Values.mode "scheduler") (or $authorization .token) }}
- port: scheduler
  path: /metrics
  interval: {{ .interval }}
  scheme: https
  tlsConfig:
    insecureSkipVerify: true
  {{- if $authorization }}
  authorization:
    {{- toYaml $authorization | nindent 4 }}
  {{- else }}
  bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  {{- end }}
{{- end }}
{{- end -}}
