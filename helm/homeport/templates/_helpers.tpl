{{/* The name of the application, at most 63 characters. */}}
{{- define "homeport.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the release's objects. It has at most 50 characters, so that suffixes can be added. */}}
{{- define "homeport.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "homeport.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The name of cluster-scoped objects. It includes the namespace, so that releases do not conflict. */}}
{{- define "homeport.clusterName" -}}
{{- printf "%s.%s" (include "homeport.fullname" .) (include "homeport.namespace" .) -}}
{{- end -}}

{{- define "homeport.selectorLabels" -}}
app.kubernetes.io/name: {{ include "homeport.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | quote }}
{{- end -}}

{{/* Labels by which selectors find the pods. The pods of `helm test` have another component. */}}
{{- define "homeport.podSelectorLabels" -}}
{{ include "homeport.selectorLabels" . }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "homeport.labels" -}}
{{- $own := dict
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
      "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_" | trunc 63)
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- merge $own (include "homeport.selectorLabels" . | fromYaml) .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "homeport.serviceAccountName" -}}
{{- ternary (default (include "homeport.fullname" .) .Values.serviceAccount.name) .Values.serviceAccount.name .Values.serviceAccount.create -}}
{{- end -}}

{{/* Name of an image. Takes `root`, `image` and `tag`, the default tag. */}}
{{- define "homeport.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
{{- printf "%s%s@%s" $name (ternary (printf ":%s" .image.tag) "" (ne .image.tag "")) .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "homeport.homeportImage" -}}
{{- include "homeport.image" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* Image of kube-scheduler in the cluster's version. A vendor's suffix is removed; no image has such a tag. */}}
{{- define "homeport.kubeSchedulerImage" -}}
{{- $tag := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- include "homeport.image" (dict "root" . "image" .Values.kubeScheduler.image "tag" $tag) -}}
{{- end -}}

{{/* Names of the Secrets. They differ between the sources of certificates, so that the source can be changed. */}}
{{- define "homeport.authoritySecretName" -}}
{{- printf "%s-%s" (include "homeport.fullname" .) (ternary "ca" "authority" (eq .Values.certificates.source "certManager")) -}}
{{- end -}}

{{/* Secret with the client certificate of a scheduler outside the pod; empty if there is none. */}}
{{- define "homeport.clientSecretName" -}}
{{- if eq .Values.mode "service" -}}
{{- if eq .Values.certificates.source "existingSecret" -}}
{{- .Values.certificates.existingSecret.clientName -}}
{{- else -}}
{{- printf "%s-%s" (include "homeport.fullname" .) (ternary "client-tls" "client" (eq .Values.certificates.source "certManager")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "homeport.servingSecretName" -}}
{{- if eq .Values.certificates.source "existingSecret" -}}
{{- .Values.certificates.existingSecret.name -}}
{{- else -}}
{{- include "homeport.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* DNS name by which the scheduler of mode `service` verifies Homeport's certificate. */}}
{{- define "homeport.serverName" -}}
{{- printf "%s.%s.svc" (include "homeport.fullname" .) (include "homeport.namespace" .) -}}
{{- end -}}

{{- define "homeport.dnsNames" -}}
{{- $name := include "homeport.serverName" . -}}
{{- concat (list $name (printf "%s.cluster.local" $name)) .Values.certificates.extraDnsNames | uniq | toYaml -}}
{{- end -}}

{{- define "homeport.schedulerLeaseName" -}}
{{- include "homeport.fullname" . }}-scheduler
{{- end -}}

{{/* A duration such as 1h30m in milliseconds. */}}
{{- define "homeport.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+(\\.[0-9]+)?(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* "true" if an object of a kind that not every cluster has is rendered, else empty.
     Takes `root`, `mode`, `kind` (`group/version/Kind`) and `value`, the path of the value that enables it. */}}
{{- define "homeport.rendersKind" -}}
{{- if eq .mode "alwaysRender" -}}
true
{{- else if .root.Capabilities.APIVersions.Has .kind -}}
true
{{- else if eq .mode "failIfMissing" -}}
{{- fail (printf "%s needs %s, which this cluster does not serve. Install its definition first, or set %s.renderMode to alwaysRender where the chart is rendered without a cluster." .value .kind .value) -}}
{{- end -}}
{{- end -}}
