{{/* Rules of the ClusterRole: the same as `homeport rbac` prints for the configuration in the ConfigMap. */}}
{{- define "homeport.clusterRules" -}}
- apiGroups: [""]
  resources: [nodes, pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [""]
  resources: [pods/binding]
  verbs: [create]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- if eq (include "homeport.preempts" .) "true" }}
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
{{- end }}
{{- if not (and (hasKey .Values.config "events") (not .Values.config.events)) }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- with .Values.plugins.podTopologySpread }}
{{- $listed := eq (default "System" .args.defaultingType) "List" }}
{{- if and .enabled (or (not $listed) .args.defaultConstraints) }}
- apiGroups: [""]
  resources: [services, replicationcontrollers]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- if and .Values.plugins.stickyNode.enabled .Values.plugins.stickyNode.owners }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
- apiGroups: [""]
  resources: [persistentvolumeclaims, persistentvolumes]
  verbs: [get, list, watch]
{{- range .Values.plugins.stickyNode.owners }}
{{- range concat (list .) (default list .through) }}
- apiGroups: [{{ include "homeport.groupOf" .apiVersion | quote }}]
  resources: [{{ .resource | quote }}]
  verbs: [get, list, watch]
{{- end }}
- apiGroups: [{{ include "homeport.groupOf" .apiVersion | quote }}]
  resources: [{{ .resource | quote }}]
  verbs: [patch]
{{- end }}
{{- if eq (include "homeport.remembersHomes" .) "true" }}
- apiGroups: [homeport.dev]
  resources: [homes]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if (default dict .Values.plugins.stickyNode.args).namespaces }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- if .Values.extender.pick }}
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, patch]
{{- end }}
{{- if or .Values.extender.pick (eq (default "profile" .Values.config.explain) "complete") }}
- apiGroups: [""]
  resources: [namespaces, persistentvolumeclaims, persistentvolumes]
  verbs: [list, watch]
- apiGroups: [storage.k8s.io]
  resources: [csidrivers, csinodes, csistoragecapacities, storageclasses, volumeattachments]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [deviceclasses, resourceclaims, resourceslices]
  verbs: [list, watch]
{{- if ne (include "homeport.preempts" .) "true" }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
{{- end }}
{{- if not .Values.plugins.podTopologySpread.enabled }}
- apiGroups: [""]
  resources: [services, replicationcontrollers]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" if any rule remembers homes of deleted owners: OwnerRule.by_name of StickyNodeArgs. */}}
{{- define "homeport.remembersHomes" -}}
{{- $found := false -}}
{{- range .Values.plugins.stickyNode.owners -}}
{{- $isSet := and (eq .apiVersion "apps/v1") (eq .kind "StatefulSet") (default false .perOrdinal) -}}
{{- $byName := or $isSet (hasPrefix "kubevirt.io/" .apiVersion) -}}
{{- if eq (default (ternary "name" "uid" $byName) .remember) "name" -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* The group of an apiVersion; empty for v1. */}}
{{- define "homeport.groupOf" -}}
{{- if contains "/" . -}}
{{- first (splitList "/" .) -}}
{{- end -}}
{{- end -}}

{{/* Rules of the Role in Homeport's own namespace. */}}
{{- define "homeport.namespaceRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "homeport.fullname" . | quote }}]
  verbs: [get, watch, update]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- if eq .Values.certificates.source "selfSigned" }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
  - {{ include "homeport.authoritySecretName" . | quote }}
  {{- with include "homeport.clientSecretName" . }}
  - {{ . | quote }}
  {{- end }}
  verbs: [get, patch]
{{- end }}
{{- end -}}
