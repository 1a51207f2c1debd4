{{/*
The pods of the chart's hooks: the check of the config before it is released, and `helm test`. Both run the proxy's own
image, and neither gets a Secret.
*/}}

{{/*
A list of the ConfigMaps with the config, as sources of a projected volume: (list CHART NAME), NAME being that of the
chart's own ConfigMap. All are optional: what a release itself still has to make is reported as a missing file.
*/}}
{{- define "toolcall-proxy.configSources" -}}
{{- $values := (index . 0).Values -}}
- configMap: { name: {{ $values.existingConfigMap | default (index . 1) }}, optional: true }
{{- range $values.schemaConfigMaps }}
- configMap:
    {{- toYaml (mergeOverwrite (deepCopy .) (dict "optional" true)) | nindent 4 }}
{{- end }}
{{- end }}

{{/* The volumes: (list CHART NAME). Of the further volumes, those that are ConfigMaps: schemas may lie there. */}}
{{- define "toolcall-proxy.hookVolumes" -}}
{{- $values := (index . 0).Values -}}
- name: toolcall-proxy-config
  projected:
    defaultMode: 292
    sources:
      {{- include "toolcall-proxy.configSources" . | nindent 6 }}
{{- range $values.extraVolumes }}
{{- if .configMap }}
- name: {{ .name }}
  configMap:
    {{- toYaml (mergeOverwrite (deepCopy .configMap) (dict "optional" true)) | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "toolcall-proxy.hookVolumeMounts" -}}
- { name: toolcall-proxy-config, mountPath: /etc/toolcall-proxy, readOnly: true }
{{- $maps := list -}}
{{- range .Values.extraVolumes }}{{ if .configMap }}{{ $maps = append $maps .name }}{{ end }}{{ end -}}
{{- range .Values.extraVolumeMounts }}
{{- if has .name $maps }}
- {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every hook's pod has beside its container: (list CHART SERVICE-ACCOUNT) */}}
{{- define "toolcall-proxy.hookPod" -}}
{{- $values := (index . 0).Values -}}
restartPolicy: Never
serviceAccountName: {{ index . 1 }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- range $field := list "imagePullSecrets" "podSecurityContext" "nodeSelector" "tolerations" "priorityClassName" }}
{{- with get $values $field }}
{{ eq $field "podSecurityContext" | ternary "securityContext" $field }}: {{- kindIs "string" . | ternary (printf " %v" .) (toYaml . | nindent 2) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every hook's container has beside its command. */}}
{{- define "toolcall-proxy.hookContainer" -}}
image: {{ include "toolcall-proxy.image" (dict "image" .Values.image "tag" .Chart.AppVersion "where" "image") | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
resources:
  requests: { cpu: 10m, memory: 64Mi }
  limits: { memory: 256Mi }
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
