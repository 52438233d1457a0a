{{/* Homeport's container. Beside a kube-scheduler it is a sidecar that starts before it and ends after it. */}}
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
    # New connections still come while the endpoint is being taken away.
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
  # Homeport's answer, not its own: kubelet restarts the sidecar alone, and a kube-scheduler that leads beside a Homeport
  # that does not come back would keep its Lease, say that it is well and schedule nothing. Restarted it gives the Lease
  # up, and the other replica leads. A named port would be looked for in this container.
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

{{/* Its environment. A proxy is meant for the world outside: what is in the cluster is reached without it. */}}
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
