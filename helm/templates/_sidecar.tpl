{{/*
The proxy's container and its volumes, for the pods of this chart and of any other:

    spec:
      initContainers:                      # `containers:` with sidecar.native: false
        {{- include "toolcall-proxy.sidecar" . | nindent 8 }}
      volumes:
        {{- include "toolcall-proxy.volumes" . | nindent 8 }}

Beside them: toolcall-proxy.podLabels, .podAnnotations (_config.tpl), .toolLifecycle and .terminationGracePeriodSeconds
(_grace.tpl).
*/}}

{{/* A list of one container. */}}
{{- define "toolcall-proxy.sidecar" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- include "toolcall-proxy.container" $found.chart -}}
{{- end }}

{{- define "toolcall-proxy.container" -}}
{{- $values := .Values -}}
{{- $native := and $values.sidecar.native (ne $values.shape "gateway") -}}
{{- if and $native (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
  {{- fail (printf "toolcall-proxy: Kubernetes %s runs no native sidecars (1.29 and newer do): set sidecar.native: false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
- name: {{ $values.sidecar.name }}
  image: {{ include "toolcall-proxy.image" (dict "image" $values.image "tag" .Chart.AppVersion "where" "image") | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  {{- if $native }}
  restartPolicy: Always
  {{- end }}
  command: [python, -m, proxy]
  args: {{ include "toolcall-proxy.serveArgs" . }}
  # Why it ended (a config that it cannot take) is in the pod's status: kubectl describe.
  terminationMessagePolicy: FallbackToLogsOnError
  {{- if or $values.extraEnv $values.events.enabled }}
  env:
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $values.events.enabled }}
    - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
    - { name: POD_UID, valueFrom: { fieldRef: { fieldPath: metadata.uid } } }
    {{- end }}
  {{- end }}
  {{- with $values.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - { name: toolproxy, containerPort: {{ $values.ports.calls }}, protocol: TCP }
    - { name: toolproxy-probe, containerPort: {{ $values.ports.probes }}, protocol: TCP }
  {{- if $native }}
  lifecycle:
    preStop:
      exec:
        command: {{ include "toolcall-proxy.drainCommand" . }}
  {{- end }}
  {{- range $probe, $path := dict "startup" "/startupz" "readiness" "/readyz" "liveness" "/livez" }}
  {{ $probe }}Probe:
    httpGet: { path: {{ $path }}, port: toolproxy-probe }
    {{- toYaml (get $values.probes $probe) | nindent 4 }}
  {{- end }}
  {{- with $values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - { name: toolcall-proxy-config, mountPath: /etc/toolcall-proxy, readOnly: true }
    {{- if $values.existingSecret }}
    - { name: toolcall-proxy-secret, mountPath: /run/secrets/toolcall-proxy, readOnly: true }
    {{- end }}
    {{- if $values.events.enabled }}
    - { name: toolcall-proxy-account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
    {{- end }}
    {{- with $values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What `serve` is told: the config, and the pod's ports, which it has to fit. */}}
{{- define "toolcall-proxy.serveArgs" -}}
{{- $ports := .Values.ports -}}
{{- $args := list "serve" "/etc/toolcall-proxy/config.yaml" "--pod-ports" (printf "%d,%d,%d" (int $ports.calls) (int $ports.probes) (int $ports.admin)) -}}
{{- if .Values.events.enabled }}{{ $args = append $args "--pod-events" }}{{ end -}}
{{- toJson $args -}}
{{- end }}

{{/*
The command of the sidecar's preStop hook. All hooks of a pod run at once, when it is to end; the native sidecar's own
SIGTERM comes after the tool has ended. With `--with-tools` it returns when the tool is gone already: in a Job. A gateway and an ordinary container get theirs at once, and drain on it.
*/}}
{{- define "toolcall-proxy.drainCommand" -}}
{{- $values := .Values -}}
{{- $command := list "python" "-m" "proxy" "drain" "--with-tools" "--admin" (printf "127.0.0.1:%d" (int $values.ports.admin)) -}}
{{- if $values.existingConfigMap -}}
  {{- $command = concat $command (list "--seconds" (toString $values.drain.seconds)) -}}
{{- end -}}
{{- with dig "token" "" ($values.config.admin | default dict) -}}
  {{- $file := regexFind "^[$][{]file:[^}]+[}]$" . -}}
  {{- if $file -}}
    {{- $command = concat $command (list "--token-file" (trimSuffix "}" (trimPrefix "${file:" $file))) -}}
  {{- else if ne . "${TOOLCALL_PROXY_ADMIN_TOKEN}" -}}
    {{- fail "toolcall-proxy: config.admin.token: the preStop hook needs it too, so write ${file:/run/secrets/toolcall-proxy/KEY} or ${TOOLCALL_PROXY_ADMIN_TOKEN}" -}}
  {{- end -}}
{{- end -}}
{{- toJson $command -}}
{{- end }}

{{/*
A list of volumes. One folder: kubelet exchanges all of it at once, so no file is newer than another. Files are not listed
by name: a further schema would change the pod, and so roll it.
*/}}
{{- define "toolcall-proxy.volumes" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- $chart := $found.chart -}}
{{- $values := $chart.Values -}}
- name: toolcall-proxy-config
  projected:
    defaultMode: 292
    sources:
      {{- if $values.existingConfigMap }}
      - configMap:
          name: {{ $values.existingConfigMap }}
      {{- else }}
      - configMap:
          name: {{ include "toolcall-proxy.fullname" $chart }}
      {{- end }}
      {{- range $values.schemaConfigMaps }}
      - configMap:
          {{- toYaml . | nindent 10 }}
      {{- end }}
{{- if $values.existingSecret }}
- name: toolcall-proxy-secret
  secret:
    secretName: {{ $values.existingSecret }}
    defaultMode: 292
{{- end }}
{{- if $values.events.enabled }}
- name: toolcall-proxy-account
  projected:
    defaultMode: 292
    sources:
      - serviceAccountToken: { path: token, expirationSeconds: 3607 }
      - configMap: { name: kube-root-ca.crt, items: [{ key: ca.crt, path: ca.crt }] }
      - downwardAPI: { items: [{ path: namespace, fieldRef: { fieldPath: metadata.namespace } }] }
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
