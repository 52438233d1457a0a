{{/* What is scraped in a pod. kube-scheduler's certificate is its own, made at each start, and it asks who calls: a
     ServiceMonitor shows it the token of Prometheus, a PodMonitor only what a Secret holds. */}}
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
