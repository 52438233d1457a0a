{{/* Homeport's container. In mode `scheduler` it is a sidecar: it starts before kube-scheduler and ends after. */}}
{{- define "homeport.container" -}}
- name: homeport
  image: {{ include "homeport.homeportImage" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if eq .Values.mode "scheduler" }}
  restartPolicy: Always
  {{- end }}
  args:
    - serve
    - --config=/etc/homeport/homeport.yaml
    {{- with .Values.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    {{- if eq .Values.mode "service" }}
    - name: verbs
      containerPort: {{ .Values.extender.port }}
      protocol: TCP
    {{- else }}
    - name: peers
      containerPort: 8890
      protocol: TCP
    {{- end }}
    - name: operator
      containerPort: 8889
      protocol: TCP
  startupProbe:
    httpGet:
      path: /readyz
      port: operator
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: {{ .Values.startupSeconds }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: operator
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  livenessProbe:
    httpGet:
      path: /livez
      port: operator
    periodSeconds: 10
    timeoutSeconds: 10
    failureThreshold: 6
  {{- if eq .Values.mode "service" }}
  lifecycle:
    # Clients still open new connections while the endpoint is being removed.
    preStop:
      sleep:
        seconds: 3
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/homeport
      readOnly: true
    - name: temporary
      mountPath: /tmp
    {{- if ne .Values.certificates.source "selfSigned" }}
    - name: certificates
      mountPath: /tls
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "homeport.kubeSchedulerContainer" -}}
{{- $scheduler := .Values.kubeScheduler -}}
- name: kube-scheduler
  image: {{ include "homeport.kubeSchedulerImage" . | quote }}
  imagePullPolicy: {{ $scheduler.image.pullPolicy }}
  command:
    - kube-scheduler
  args:
    - --config=/etc/homeport/kube-scheduler.yaml
    - --bind-address={{ .Values.listenAddress }}
    - --v={{ $scheduler.logVerbosity }}
    {{- range $gate, $on := $scheduler.featureGates }}
    - --feature-gates={{ $gate }}={{ $on }}
    {{- end }}
    {{- with $scheduler.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "homeport.kubeSchedulerEnv" . }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  ports:
    - name: scheduler
      containerPort: 10259
      protocol: TCP
  startupProbe:
    httpGet:
      path: /readyz
      port: scheduler
      scheme: HTTPS
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: {{ .Values.startupSeconds }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: scheduler
      scheme: HTTPS
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  # The probe calls Homeport instead of kube-scheduler. If Homeport fails, the kubelet restarts only the sidecar. If
  # Homeport does not come back, a leading kube-scheduler would stay healthy, keep its Lease and schedule no pods. The
  # probe restarts kube-scheduler, which then releases the Lease, so that the other replica leads. The port is a number,
  # because a named port would have to be one of this container.
  livenessProbe:
    httpGet:
      path: /livez
      port: 8889
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
  resources:
    {{- toYaml $scheduler.resources | nindent 4 }}
  securityContext:
    {{- toYaml $scheduler.securityContext | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/homeport
      readOnly: true
{{- end -}}

{{/* Environment of kube-scheduler. If it contains a proxy, addresses in the cluster are reached without the proxy. */}}
{{- define "homeport.kubeSchedulerEnv" -}}
{{- $names := list -}}
{{- range .Values.kubeScheduler.extraEnv -}}
{{- $names = append $names (upper .name) -}}
{{- end -}}
{{- with .Values.kubeScheduler.extraEnv -}}
{{- toYaml . -}}
{{- end -}}
{{- if and (or (has "HTTP_PROXY" $names) (has "HTTPS_PROXY" $names)) (not (has "NO_PROXY" $names)) }}
- name: NO_PROXY
  value: $(KUBERNETES_SERVICE_HOST),localhost,127.0.0.1,::1,.svc,.cluster.local
{{- end -}}
{{- end -}}
