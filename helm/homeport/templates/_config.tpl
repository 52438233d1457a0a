{{/* schedulerNames about which Homeport decides, as a list. */}}
{{- define "homeport.schedulerNames" -}}
{{- concat (list .Values.schedulerName) .Values.extraSchedulerNames | toYaml -}}
{{- end -}}

{{/* Settings of HomeportConfiguration that other values determine. The chart rejects them in `config`. */}}
{{- define "homeport.ownSettings" -}}
{{- $namespace := include "homeport.namespace" . -}}
{{- $own := dict
      "port" (int .Values.extender.port)
      "operatorHost" .Values.listenAddress
      "operatorPort" 8889
      "operatorTls" false
      "httpTimeout" .Values.extender.httpTimeout
      "maxPriority" (include "homeport.maxPriority" . | int)
      "leaderElection" (merge (dict "leaderElect" true "resourceNamespace" $namespace "resourceName" (include "homeport.fullname" .) "lockFile" "/tmp/homeport.lock") .Values.leaderElection)
      "profiles" (include "homeport.profiles" . | fromYamlArray) -}}
{{- if eq .Values.mode "scheduler" -}}
{{- $own = merge $own (dict "host" "127.0.0.1" "tls" false "peerHost" .Values.listenAddress "peerPort" 8890) -}}
{{- else -}}
{{- $own = merge $own (dict "host" .Values.listenAddress "allowedNames" (list .Values.certificates.clientName)) -}}
{{- end -}}
{{- if (.Values.operatorService).enabled -}}
{{- $own = merge $own (dict "openReads" true) -}}
{{- end -}}
{{- if eq .Values.certificates.source "selfSigned" -}}
{{- $made := dict
      "secretNamespace" $namespace
      "secretName" (include "homeport.authoritySecretName" .)
      "dnsNames" (include "homeport.dnsNames" . | fromYamlArray) -}}
{{- with include "homeport.clientSecretName" . -}}
{{- $made = merge $made (dict "clientSecretName" . "clientName" $.Values.certificates.clientName "clientDuration" $.Values.certificates.selfSigned.clientDuration) -}}
{{- end -}}
{{- $own = merge $own (dict "selfSigned" $made) -}}
{{- else -}}
{{- $own = merge $own (dict "tlsCertFile" "/tls/tls.crt" "tlsPrivateKeyFile" "/tls/tls.key" "clientCAFile" "/tls/ca.crt") -}}
{{- end -}}
{{- toYaml $own -}}
{{- end -}}

{{/* "true" if Homeport evicts pods. */}}
{{- define "homeport.preempts" -}}
{{- with .Values.plugins.podTopologySpread -}}
{{- and .enabled (eq (default "Never" .preemption) "Own") -}}
{{- end -}}
{{- end -}}

{{/* Settings of HomeportConfiguration that other values determine and that `config` can override. */}}
{{- define "homeport.presetSettings" -}}
{{- if eq (int .Values.kubeScheduler.percentageOfNodesToScore) 100 -}}
samplingGuard: false
{{- end -}}
{{- end -}}

{{/* Kubernetes release of the in-tree plugins if the calling kube-scheduler is older than Homeport's default, 1.36. */}}
{{- define "homeport.release" -}}
{{- $tag := ternary .Values.kubeScheduler.image.tag "" (eq .Values.mode "scheduler") -}}
{{- $version := regexFind "[0-9]+\\.[0-9]+" (default .Capabilities.KubeVersion.Version $tag) -}}
{{- if and $version (semverCompare "<1.36" $version) -}}
1.35
{{- end -}}
{{- end -}}

{{/* Homeport's profiles: one for each schedulerName, with equal content. */}}
{{- define "homeport.profiles" -}}
{{- $disabled := list -}}
{{- $arguments := list -}}
{{- with .Values.plugins.podTopologySpread -}}
{{- if not .enabled -}}
{{- $disabled = append $disabled (dict "name" "PodTopologySpread") -}}
{{- else if .args -}}
{{- $arguments = append $arguments (dict "name" "PodTopologySpread" "args" .args) -}}
{{- end -}}
{{- end -}}
{{- with .Values.plugins.stickyNode -}}
{{- if not .enabled -}}
{{- $disabled = append $disabled (dict "name" "StickyNode") -}}
{{- else -}}
{{- $owners := list -}}
{{- range .owners -}}
{{- $owner := omit . "resource" "through" -}}
{{- $through := list -}}
{{- range .through -}}
{{- $through = append $through (omit . "resource") -}}
{{- end -}}
{{- $owners = append $owners (ternary (set (deepCopy $owner) "through" $through) $owner (gt (len $through) 0)) -}}
{{- end -}}
{{- $arguments = append $arguments (dict "name" "StickyNode" "args" (set (deepCopy (default dict .args)) "owners" $owners)) -}}
{{- end -}}
{{- end -}}
{{- $profiles := list -}}
{{- range include "homeport.schedulerNames" . | fromYamlArray -}}
{{- $profile := dict "schedulerName" . -}}
{{- if $disabled -}}
{{- $profile = merge $profile (dict "plugins" (dict "multiPoint" (dict "disabled" $disabled))) -}}
{{- end -}}
{{- if $arguments -}}
{{- $profile = merge $profile (dict "pluginConfig" $arguments) -}}
{{- end -}}
{{- if eq (include "homeport.preempts" $) "true" -}}
{{- $profile = merge $profile (dict "preemption" "Own") -}}
{{- end -}}
{{- with $.Values.extender.atMost -}}
{{- $profile = merge $profile (dict "atMost" (int .)) -}}
{{- end -}}
{{- with include "homeport.release" $ -}}
{{- $profile = merge $profile (dict "release" .) -}}
{{- end -}}
{{- if $.Values.extender.pick -}}
{{- $profile = merge $profile (dict "preset" "complete" "pick" true) -}}
{{- end -}}
{{- $profiles = append $profiles $profile -}}
{{- end -}}
{{- toYaml $profiles -}}
{{- end -}}

{{- define "homeport.config" -}}
apiVersion: homeport.dev/v1alpha1
kind: HomeportConfiguration
{{ merge (include "homeport.ownSettings" . | fromYaml) .Values.config (include "homeport.presetSettings" . | fromYaml) | toYaml }}
{{- end -}}

{{/* Factor of all in-tree score weights. In mode `scheduler`, Homeport's scale is 100, and the extender's smallest
     weight, 1, then counts as much as an in-tree weight of 10. PodTopologySpread has weight 2, so the factor is 5. */}}
{{- define "homeport.weightFactor" -}}
{{- ternary 5 1 (eq .Values.mode "scheduler") -}}
{{- end -}}

{{/* Homeport's highest score. In mode `scheduler` it is 100, as in-tree, because the chart sets all weights there. */}}
{{- define "homeport.maxPriority" -}}
{{- default (ternary 100 20 (eq .Values.mode "scheduler")) .Values.extender.maxPriority | int -}}
{{- end -}}

{{/* Score plugins of kube-scheduler's default profile with their weights times the factor, as a list. Plugins that the
     user's `multiPoint` disables or enables are omitted. VolumeBinding scores only with a feature gate. */}}
{{- define "homeport.weightedPlugins" -}}
{{- $weights := dict
      "TaintToleration" 3
      "NodeAffinity" 2
      "NodeResourcesFit" 1
      "VolumeBinding" 1
      "PodTopologySpread" 2
      "InterPodAffinity" 2
      "DynamicResources" 2
      "NodeResourcesBalancedAllocation" 1
      "ImageLocality" 1 -}}
{{- $factor := include "homeport.weightFactor" . | int -}}
{{- $multiPoint := default dict .Values.kubeScheduler.plugins.multiPoint -}}
{{- $named := list -}}
{{- range concat (default list $multiPoint.disabled) (default list $multiPoint.enabled) -}}
{{- $named = append $named .name -}}
{{- end -}}
{{- if .Values.plugins.podTopologySpread.enabled -}}
{{- $named = append $named "PodTopologySpread" -}}
{{- end -}}
{{- $weighted := list -}}
{{- range $name, $weight := ternary dict $weights (has "*" $named) -}}
{{- if not (has $name $named) -}}
{{- $weighted = append $weighted (dict "name" $name "weight" (mul $weight $factor)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $weighted -}}
{{- end -}}

{{/* Parts of a KubeSchedulerConfiguration that make kube-scheduler call Homeport, for both modes and the notes. */}}
{{- define "homeport.delegation" -}}
{{- $plugins := deepCopy .Values.kubeScheduler.plugins -}}
{{- $factor := include "homeport.weightFactor" . | int -}}
{{- if gt $factor 1 -}}
{{- range $point := list "multiPoint" "score" -}}
{{- range default list (get (default dict (get $plugins $point)) "enabled") -}}
{{- $_ := set . "weight" (mul (default 1 .weight) $factor) -}}
{{- end -}}
{{- end -}}
{{- $multiPoint := default dict $plugins.multiPoint -}}
{{- $enabled := concat (include "homeport.weightedPlugins" . | fromYamlArray) (default list $multiPoint.enabled) -}}
{{- $_ := set $plugins "multiPoint" (merge (dict "enabled" $enabled) $multiPoint) -}}
{{- end -}}
{{- if .Values.plugins.podTopologySpread.enabled -}}
{{- $multiPoint := default dict $plugins.multiPoint -}}
{{- $disabled := append (default list $multiPoint.disabled) (dict "name" "PodTopologySpread") -}}
{{- $_ := set $plugins "multiPoint" (merge (dict "disabled" $disabled) $multiPoint) -}}
{{- end -}}
{{- $profiles := list -}}
{{- range include "homeport.schedulerNames" . | fromYamlArray -}}
{{- $profile := dict "schedulerName" . -}}
{{- if $plugins -}}
{{- $profile = merge $profile (dict "plugins" $plugins) -}}
{{- end -}}
{{- with $.Values.kubeScheduler.pluginConfig -}}
{{- $profile = merge $profile (dict "pluginConfig" .) -}}
{{- end -}}
{{- $profiles = append $profiles $profile -}}
{{- end -}}
percentageOfNodesToScore: {{ .Values.kubeScheduler.percentageOfNodesToScore }}
profiles:
{{ toYaml $profiles }}
extenders:
- {{ include "homeport.extender" . | nindent 2 | trim }}
{{- end -}}

{{/* Entry in `extenders`. Over a network, the caller verifies Homeport's certificate and has its own certificate. */}}
{{- define "homeport.extender" -}}
{{- $secure := eq .Values.mode "service" -}}
{{- $host := ternary (default (include "homeport.serverName" .) .Values.service.clusterIP) "127.0.0.1" $secure -}}
{{- $host = ternary (printf "[%s]" $host) $host (contains ":" $host) -}}
{{- $path := ternary "/lean" "" .Values.extender.lean -}}
urlPrefix: {{ ternary "https" "http" $secure }}://{{ $host }}:{{ .Values.extender.port }}{{ $path }}
filterVerb: filter
prioritizeVerb: prioritize
preemptVerb: preempt
bindVerb: bind
weight: {{ div (mul .Values.extender.weight 10 (include "homeport.weightFactor" .)) (include "homeport.maxPriority" .) }}
nodeCacheCapable: true
httpTimeout: {{ .Values.extender.httpTimeout }}
ignorable: false
{{- if $secure }}
enableHTTPS: true
tlsConfig:
  caFile: /etc/kubernetes/homeport/ca.crt
  certFile: /etc/kubernetes/homeport/tls.crt
  keyFile: /etc/kubernetes/homeport/tls.key
  serverName: {{ include "homeport.serverName" . }}
{{- end }}
{{- end -}}

{{/* Configuration of the kube-scheduler of mode `scheduler`. It has a Lease of its own. */}}
{{- define "homeport.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceNamespace: {{ include "homeport.namespace" . | quote }}
  resourceName: {{ include "homeport.schedulerLeaseName" . | quote }}
  {{- toYaml .Values.kubeScheduler.leaderElection | nindent 2 }}
clientConnection:
  {{- toYaml .Values.kubeScheduler.clientConnection | nindent 2 }}
{{ include "homeport.delegation" . }}
{{- end -}}

{{/* Content of the ConfigMap. If it changes, the pods are restarted. */}}
{{- define "homeport.files" -}}
homeport.yaml: |
  {{- include "homeport.config" . | nindent 2 }}
{{- if eq .Values.mode "scheduler" }}
kube-scheduler.yaml: |
  {{- include "homeport.schedulerConfig" . | nindent 2 }}
{{- end }}
{{- end -}}
